#!/bin/sh
# session.sh SKIP_MIB: runs the commands that the host sends, one a line, until it hangs up.
#
# A line is `MIB SAMPLE_MS SCRIPT`: how much of the job disk behind its file system (from SKIP_MIB
# on) is a tar archive with files for it, how often its memory is read (0: never), and the script in
# base64. What command N leaves is in /job/out/commands/N; then the host is told `ENQ N STATUS ACK`.
# It is not run if its files do not fit, which are removed. guest/session.py is the host's end.
set -u

LAB=/usr/lib/numalab
COMMANDS=/job/out/commands
PHASE=/run/numalab.phase
NO_CAPTURE=no-capture # why nothing is recorded, beside what a command leaves
NOT_UNPACKED=999      # in place of a status

# shellcheck disable=SC1091 # in the image
. $LAB/capture.sh

complain() { printf 'numalab: %s\n' "$1" >/dev/console; }
archive() { busybox dd if=/dev/pmem1 iflag=direct bs=1M skip="$1" count="$2" status=none; }
tell() { printf '\005%s %s\006' "$1" "$2"; }

# What a command left running must not slow down later ones. This takes the heartbeat of init, too,
# and the first beat of another one is due in 2 s, which the next command may not let it reach.
# Only init writes PHASE, so that a test of this script on a host ends nothing there.
end_processes() {
    [ -e $PHASE ] || return 0
    kill -9 -1
    read -r up _ </proc/uptime
    printf '{"phase": "workload", "uptime": %s}\n' "$up" >&3
    $LAB/numalab-beat 2 $PHASE >&3 &
    echo -1000 >/proc/$!/oom_score_adj # as init does
}

stty raw -echo
busybox dmesg -n 1 # the kernel must not print between the answers
busybox mount -o remount,async /job
busybox mkdir -p $COMMANDS /job/files
capture_stop
busybox cp -r /run/machine/. /job/out
busybox dmesg >/job/out/dmesg.txt
busybox sync
tell 0 0

number=0 # capture.sh uses some names of its own: folder, line
while IFS=' ' read -r mib sample_ms line; do
    busybox rm -rf "$COMMANDS/$number"
    number=$((number + 1))
    place=$COMMANDS/$number
    busybox mkdir -p "$place/files"
    printf %s "$line" | busybox base64 -d >/run/numalab.command
    if [ "$mib" != 0 ] && ! archive "$1" "$mib" | busybox tar xf - -C /job/files; then
        archive "$1" "$mib" | busybox tar tf - | while IFS= read -r name; do
            busybox rm -f "/job/files/$name"
        done
        tell $number $NOT_UNPACKED
        continue
    fi
    # Extracting removes the trace instance, so that each command gets one of its own.
    capture_start || printf '%s\n' "$CAPTURE_REASON" >"$place/$NO_CAPTURE"
    # Without the terminal: it is the host's, and a command that reads it would stop for ever.
    OUT=$place/files setsid $LAB/numalab-run "$place" "$sample_ms" p -- sh /run/numalab.command \
        </dev/null >"$place/stdout" 2>"$place/stderr" 3>&-
    status=$?
    echo $status >"$place/status"
    capture_stop
    end_processes
    if capture_wanted && [ -d "$INSTANCE" ]; then
        capture_extract
        busybox mv /job/out/trace.dat /job/out/trace-stats.txt "$place"
    fi
    busybox sync
    tell $number $status
done
