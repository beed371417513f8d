"""A decoder's layers on a device of torch's, such as a CUDA GPU (decision 0229)."""
