"""The numbers that bound a machine."""

LOCAL_DISTANCE = 10  # ACPI 6.5, 5.2.17: the distance from a locality to itself
MAX_DISTANCE = 254  # 255 means that one node cannot reach the other
UNREACHABLE = 255
MAX_NODES = 64  # CONFIG_NODES_SHIFT=6 in Debian's kernels
MAX_CPUS = 256
MAX_MEMORY_MIB = 1 << 24  # 16 TiB for one node
MAX_LATENCY_NS = 1_000_000
# More need x2APIC and interrupt remapping (libvirt: an iommu device with eim), which no mode has.
MAX_APIC_ID = 254
