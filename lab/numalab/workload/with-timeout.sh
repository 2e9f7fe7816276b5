#!/bin/sh
# with-timeout.sh HUNDREDTHS SECONDS CMD...: runs a command for so long at most, both the same time.
# timeout(1) sends SIGKILL after 5 more seconds, and dies by it; that is 124 here, too. The shell
# prints nothing of it: the command alone has its standard error.
exec 3>&2 2>/dev/null
least=$1
shift
read -r begin _ </proc/uptime
(exec timeout --kill-after=5 "$@" 2>&3 3>&-)
status=$?
read -r end _ </proc/uptime
took=$(((${end%.*} - ${begin%.*}) * 100 + 1${end#*.} - 1${begin#*.}))
[ $status = 137 ] && [ $took -ge "$least" ] && status=124
exit $status
