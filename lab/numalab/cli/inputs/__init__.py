"""The commands about what studies are made of: machines, kernels, images, workloads."""
