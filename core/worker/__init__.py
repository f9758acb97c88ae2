"""The killable process that holds a CUDA context."""
