# Argument: a folder with `etc`, `opt` and `log`. Runs in new namespaces, as the first process of a machine
# that shares only the network. Its root is in memory. Of the real machine it has the programs and
# libraries, which it cannot change.
set -eu
folder=$1
root=$folder/root
mkdir -p "$root"
mount -t tmpfs -o mode=0755 tmpfs "$root"
cd "$root"
mkdir -p usr etc var/lib var/log/machine var/tmp var/cache tmp run proc sys dev root home boot opt/svc old
ln -s /run var/run
chmod 1777 tmp var/tmp
read_only() {
  mount --bind "$1" "$2"
  mount -o remount,bind,ro "$2"
}
read_only /usr usr
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
  mount --bind "/dev/$device" "dev/$device"
done
mount -t tmpfs -o mode=0755 tmpfs run
pivot_root . old
umount -l old
rmdir old
# systemd deletes temporary files and changes settings. It must not see the root of the real machine.
[ "$(stat -f -c %T /)" = tmpfs ]
exec env -i container=svc PATH=/usr/sbin:/usr/bin SYSTEMD_UNIT_PATH=/etc/systemd/system \
  /lib/systemd/systemd --show-status=no --log-target=null
