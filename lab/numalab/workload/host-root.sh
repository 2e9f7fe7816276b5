#!/bin/sh
# host-root.sh FOLDER CMD...: runs a command in a folder of the host, with the host's root as its
# own. That is mounted by 9p, read-only; what the command writes stays in the guest's memory.
set -u

HOST=/run/host

fail() {
    printf 'numalab: %s\n' "$1" >&2
    exit 125
}

folder=$1
shift
busybox mkdir -p $HOST
busybox mount -t tmpfs -o mode=755 host $HOST || fail "no memory for the host's root"
busybox mkdir $HOST/lower $HOST/upper $HOST/work $HOST/root
busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose \
    host $HOST/lower || fail "the guest cannot mount the host's root"
busybox mount -t overlay -o lowerdir=$HOST/lower,upperdir=$HOST/upper,workdir=$HOST/work \
    host $HOST/root || fail "the guest has no overlay for the host's root"
busybox mkdir -p $HOST/root/job
for kept in dev proc sys job; do
    busybox mount -o rbind /$kept $HOST/root/$kept || fail "cannot mount /$kept"
done
busybox mount -t tmpfs run $HOST/root/run
# shellcheck disable=SC2016 # for the inner shell
exec busybox chroot $HOST/root /bin/sh -c 'cd "$0" 2>/dev/null || {
    echo "numalab: the user that QEMU runs as may not read $0" >&2
    exit 125
}
exec "$@"' "$folder" "$@"
