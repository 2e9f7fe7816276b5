#!/bin/sh
# shellcheck disable=SC2034 # init reads CAPTURE_REASON
#
# The flight recorder, sourced by init: start, stop, extract, all on the trace instance `lab`.
#
# The kernel command line made the instance in reserved memory, or it is made here with
# /job/buffer_kib for each CPU. Nobody reads it while the workload runs, so that no recorder task
# disturbs the scheduler that is being watched. Starting and stopping are writes to tracefs, which
# is all that `trace-cmd start` and `stop` do too, without a process of ours in the trace.

TRACING=/sys/kernel/tracing
INSTANCE=$TRACING/instances/lab

# Why the recording could not start, for the host.
CAPTURE_REASON="the recording could not be started"

# What the command is run with: its clock, counters that are sampled meanwhile, perf stat.
CAPTURE_AROUND=

capture_wanted() { [ -s /job/events ]; }

# /job/sample: `PERIOD_MS WHAT`, as numalab-run takes them. Lines of /job/perf_stat: perf's events.
capture_around() {
    period=0 what=-
    [ -s /job/sample ] && read -r period what </job/sample
    CAPTURE_AROUND="/usr/lib/numalab/numalab-run /job/out $period $what --"
    [ -s /job/perf_stat ] || return 0
    events=
    while read -r event; do
        # For a tracepoint that this kernel lacks perf would refuse all of them. `cycles:u` is none:
        # only modifiers follow (perf-list(1)).
        case $event in *:*[!DGHIPSWehkpu]*) [ -e "$TRACING/events/${event%%:*}/${event#*:}/id" ] || continue ;; esac
        events=$events${events:+,}$event
    done </job/perf_stat
    [ -z "$events" ] ||
        CAPTURE_AROUND="perf stat -a -x , -o /job/out/perf-stat.csv -e $events -- $CAPTURE_AROUND"
}

# Lines of /job/events: `system:event` or `system`, or that, a tab and a filter. With a `?` in front
# the event is recorded where this kernel has it, and named in absent-events where not.
capture_enable() {
    while IFS='	' read -r event filter; do
        optional=
        case $event in
        '' | '#'*) continue ;;
        '?'*) optional=1 event=${event#?} ;;
        esac
        folder=$INSTANCE/events/$event
        case $event in *:*) folder=$INSTANCE/events/${event%%:*}/${event#*:} ;; esac
        if [ ! -e "$folder/enable" ]; then
            if [ -n "$optional" ]; then
                echo "$event" >>/job/out/absent-events
                continue
            fi
            CAPTURE_REASON="this kernel has no event $event"
            return 1
        fi
        if [ -n "$filter" ] && ! printf '%s\n' "$filter" >"$folder/filter"; then
            CAPTURE_REASON="the kernel refused the filter of $event: $filter"
            return 1
        fi
        echo 1 >"$folder/enable" || return 1
    done </job/events
}

capture_start() {
    capture_wanted || return 0
    clock=mono
    [ -s /job/clock ] && read -r clock </job/clock
    if [ ! -d $INSTANCE ]; then
        kib=4096
        [ -s /job/buffer_kib ] && read -r kib </job/buffer_kib
        CAPTURE_REASON="no trace instance with $kib KiB for each CPU could be made"
        busybox mkdir $INSTANCE && echo "$kib" >$INSTANCE/buffer_size_kb || return 1
    fi
    echo 0 >$INSTANCE/tracing_on
    # Choosing the clock also empties the buffer.
    CAPTURE_REASON="this kernel has no trace clock $clock"
    echo "$clock" >$INSTANCE/trace_clock || return 1
    # trace-cmd extract writes into the file the clock of the top instance, whichever it takes out.
    echo "$clock" >$TRACING/trace_clock
    capture_enable || return 1
    echo 1 >$INSTANCE/tracing_on
}

capture_stop() {
    capture_wanted || return 0
    echo 0 >$INSTANCE/tracing_on
}

capture_extract() {
    [ -d $INSTANCE ] || return 0
    # Before trace-cmd takes the events out: `cpuN`, then its `entries:`, `overrun:` and so on.
    for folder in "$INSTANCE"/per_cpu/cpu*; do
        echo "${folder##*/}"
        while read -r line; do echo "$line"; done <"$folder/stats"
    done >/job/out/trace-stats.txt
    # Compressing would keep an emulated CPU busy for longer than writing does.
    trace-cmd extract -B lab --compression none -o /job/out/trace.dat >/job/out/trace-cmd.txt 2>&1 ||
        complain "trace-cmd extract failed, see trace-cmd.txt"
}
