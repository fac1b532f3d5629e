"""The NumPy twins of the C core. Tests compare each kernel with its twin; benchmarks do so before they time one."""
