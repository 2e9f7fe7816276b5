#!/bin/sh
# run-scheduler.sh SECONDS COMMAND...: starts the scheduler of /job/files/scheduler/start, runs a
# command once the scheduler is enabled, which may take so many seconds, and records in
# /job/out/scheduler.txt how both ended. Ends as the command does, or with 125 if it did not start.
# The scheduler prints to memory: a write to the job disk would wait for it.
set -u

EXT=/sys/kernel/sched_ext
START=/job/files/scheduler/start
STATISTICS=/job/files/scheduler/statistics
RECORD=/job/out/scheduler.txt
KEPT=262144 # bytes of the scheduler's output

# note KEY WORDS...
note() { echo "$*" >>$RECORD; }

# note_file KEY FILE: the first line of a file, if it is there.
note_file() {
    line=
    [ -e "$2" ] && read -r line <"$2"
    note "$1 $line"
}

note_uptime() {
    read -r up _ </proc/uptime
    note "$1 $up"
}

is_enabled() {
    read -r state <$EXT/state
    [ "$state" = enabled ] && [ -e $EXT/root/ops ]
}

has_ended() { [ -e /run/scheduler.status ]; }

# wait_for TENTHS TEST: whether a test succeeds in so many tenths of a second.
wait_for() {
    left=$1
    until "$2"; do
        [ "$left" -gt 0 ] || return 1
        left=$((left - 1))
        busybox sleep 0.1
    done
}

# End the scheduler, the harder the longer it takes, and keep its output.
finish() {
    for signal in INT TERM KILL; do
        has_ended && break
        busybox kill -$signal "$(busybox cat /run/scheduler.pid)"
        wait_for 50 has_ended
    done
    note_file exit_status /run/scheduler.status
    note_file left_state $EXT/state
    busybox tail -c $KEPT /run/scheduler.log >/job/out/scheduler.log
    [ -s /run/scheduler.statistics ] && busybox cat /run/scheduler.statistics >>/job/out/scheduler.log
    [ -e /run/command/times ] && busybox cp /run/command/times /job/out/scheduler.times
    exit "$1"
}

# The kernel counts an enabled scheduler after it has changed the state (scx_ops_enable()).
# shellcheck disable=SC2317 # an argument of wait_for
is_ready_or_over() {
    has_ended && return 0
    is_enabled || return 1
    [ -e "$EXT/enable_seq" ] || return 0
    read -r count <"$EXT/enable_seq"
    [ "$count" != "$before" ]
}

seconds=$1
shift
if [ ! -e $EXT/state ]; then
    note absent 1
    exit 125
fi
before=
[ -e $EXT/enable_seq ] && read -r before <$EXT/enable_seq
# When it ends before the command, the rest of the run is without it: end the command as well.
(
    sh $START >/run/scheduler.log 2>&1 </dev/null
    echo $? >/run/scheduler.status
    [ -e /run/scheduler.command ] && busybox kill "$(busybox cat /run/scheduler.command)"
) &
wait_for $((seconds * 10)) is_ready_or_over
if ! is_enabled; then
    note_file state $EXT/state
    finish 125
fi
note_uptime enabled
note_file ops $EXT/root/ops
note_file switch_all $EXT/switch_all
note_file seq $EXT/enable_seq
[ -e /run/scheduler.watchdog ] && note_file watchdog /run/scheduler.watchdog
reader=
if [ -e $STATISTICS ]; then
    $STATISTICS >/run/scheduler.statistics 2>/dev/null &
    reader=$!
fi
# The times of the command alone: those of the job count the scheduler as well.
busybox mkdir -p /run/command
# shellcheck disable=SC2016 # for the inner shell
sh -c 'echo $$ >/run/scheduler.command; exec "$@"' sh \
    /usr/lib/numalab/numalab-run /run/command 0 - -- "$@"
status=$?
busybox rm -f /run/scheduler.command
note_uptime ended
if [ -n "$reader" ]; then
    busybox kill -TERM "$reader"
    wait "$reader"
    note statistics $?
fi
note_file end_state $EXT/state
note_file end_ops $EXT/root/ops
note_file end_seq $EXT/enable_seq
note_file rejected $EXT/nr_rejected
# A scheduler that the kernel has disabled prints why, and ends by itself.
is_enabled || wait_for 30 has_ended
has_ended && note early 1
finish $status
