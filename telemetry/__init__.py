"""What the hardware says: NVML, occupancy, and later counters and traces. Knows nothing above it."""
