#!/bin/sh
# Sourced by init: copies what the kernel says about itself.

# Counters, from which the analysis takes differences.
collect_counters() {
    /usr/lib/numalab/numalab-copy /proc/vmstat "/job/out/vmstat.$1" /proc/schedstat "/job/out/schedstat.$1"
    # Lines of `path:counter value`.
    [ -s /job/numastat ] &&
        busybox grep -H . /sys/devices/system/node/node*/numastat >"/job/out/numastat.$1"
}

# collect_machine FOLDER: the machine as this kernel sees it.
collect_machine() {
    busybox mkdir -p "$1/sysfs"
    numactl -H >"$1/numactl.txt" 2>&1
    (
        cd /sys/devices/system/node &&
            exec busybox cp --parents node*/cpulist node*/distance node*/meminfo "$1/sysfs"
    )
    # Lines of `path:value`. The first folder is there when the kernel was started with
    # `sched_verbose`; before Linux 5.13 it was the second one.
    for folder in /sys/kernel/debug/sched/domains /proc/sys/kernel/sched_domain; do
        [ -d $folder ] && busybox grep -r . $folder >"$1/sched_domains.txt" && break
    done
}
