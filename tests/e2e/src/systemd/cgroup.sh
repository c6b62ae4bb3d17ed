# Arguments: a folder, the name of a cgroup, and a command. Runs the command in a new cgroup with this name.
# Without a command it removes the cgroup. Its mounts are those of a new namespace.
set -eu
folder=$1 name=$2
shift 2
mount --make-rprivate /
mkdir -p "$folder/cgroup"
# A mount without the options of the existing one would change them for the whole real machine.
options=$(sed -n 's/^[^ ]* [^ ]* cgroup2 \([^ ]*\) .*/\1/p' /proc/self/mounts | head -n 1)
mount -t cgroup2 -o "${options:+$options,}rw" cgroup2 "$folder/cgroup"
own=$folder/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/$name
if [ $# = 0 ]; then
  find "$own" -depth -type d -exec rmdir {} +
  exit
fi
mkdir "$own"
echo $$ > "$own/cgroup.procs"
umount "$folder/cgroup"
exec "$@"
