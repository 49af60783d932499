"""mixad and its peers on one CUDA device: values first, then times."""
