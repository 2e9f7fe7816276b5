#!/bin/sh
# Sourced by init: copies what the kernel says about itself into /job/out.

# Counters, from which the analysis takes differences.
collect_counters() {
    busybox cat /proc/vmstat >"/job/out/vmstat.$1"
    [ -e /proc/schedstat ] && busybox cat /proc/schedstat >"/job/out/schedstat.$1"
    # Lines of `path:counter value`.
    [ -s /job/numastat ] &&
        busybox grep -H . /sys/devices/system/node/node*/numastat >"/job/out/numastat.$1"
}

# The machine as this kernel sees it.
collect_machine() {
    numactl -H >/job/out/numactl.txt 2>&1
    busybox mkdir -p /job/out/sysfs
    (
        cd /sys/devices/system/node &&
            exec busybox cp --parents node*/cpulist node*/distance node*/meminfo /job/out/sysfs
    )
    # Lines of `path:value`. The first folder is there when the kernel was started with
    # `sched_verbose`; before Linux 5.13 it was the second one.
    for folder in /sys/kernel/debug/sched/domains /proc/sys/kernel/sched_domain; do
        [ -d $folder ] && busybox grep -r . $folder >/job/out/sched_domains.txt && break
    done
}
