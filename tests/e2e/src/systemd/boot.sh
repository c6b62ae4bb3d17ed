# Arguments: a folder with `etc`, `opt` and `log`, and a command. Runs in new namespaces, as the first process
# of a machine that shares only the network. Its root is in memory. Of the real machine it has the programs
# and libraries, which it cannot change.
set -eu
folder=$1
shift
[ $$ = 1 ]
# No mount of this script reaches the real machine.
mount --make-rprivate /
root=$folder/root
mkdir -p "$root"
mount -t tmpfs -o mode=0755 tmpfs "$root"
cd "$root"
mkdir -p usr etc var/lib var/log/machine var/tmp var/cache tmp run proc sys dev root home boot opt/svc old
ln -s /run var/run
# The folders that systemd empties are in memory even if the root were not.
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=1777 tmpfs var/tmp
mount -t tmpfs -o mode=0755 tmpfs run
read_only() {
  mount --bind "$1" "$2"
  mount -o remount,bind,ro "$2"
}
read_only /usr usr
# Without rules `systemd-tmpfiles` deletes nothing.
if [ -d usr/lib/tmpfiles.d ]; then
  mount -t tmpfs -o ro tmpfs usr/lib/tmpfiles.d
fi
# Links to folders of `/usr`, or on older systems folders.
for name in bin sbin lib lib64; do
  if [ -L "/$name" ]; then
    cp -P "/$name" .
  elif [ -d "/$name" ]; then
    mkdir "$name"
    read_only "/$name" "$name"
  fi
done
read_only "$folder/opt" opt/svc
mount --bind "$folder/log" var/log/machine
cp -R "$folder/etc/." etc/
cp /etc/ld.so.cache etc/
chmod -R a+rX etc
: > svc-test-machine
mount -t proc proc proc
read_only proc/sys proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=0755 tmpfs dev
mkdir dev/shm dev/pts
ln -s /proc/self/fd dev/fd
ln -s pts/ptmx dev/ptmx
for device in null zero full random urandom tty; do
  : > "dev/$device"
  # It can be written, and its owner and mode cannot be changed.
  read_only "/dev/$device" "dev/$device"
done
pivot_root . old
umount -l old
rmdir old
# systemd deletes temporary files and changes settings. It must not see the folders of the real machine.
[ -e /svc-test-machine ]
for name in / /tmp /var/tmp /run; do
  [ "$(stat -f -c %T "$name")" = tmpfs ]
done
[ ! -e "$folder" ]
# Units and generators of the real machine are not used: it looks for them only in the folders of the test.
exec env -i container=svc PATH=/usr/sbin:/usr/bin SYSTEMD_UNIT_PATH=/etc/systemd/system \
  SYSTEMD_GENERATOR_PATH=/etc/systemd/generators \
  SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/etc/systemd/generators "$@"
