"""Devices that candidates are evaluated on."""
