"""What the hardware and its tools can tell: NVML, occupancy."""
