#!/bin/sh
# Runs README's test command as a new user does on a machine without a compiler, a server or a browser: in a clean clone
# of the last commit, with an empty environment, and without the rights of root.
set -eu

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
command=$(sed -n 's/^\(make test\) .*/\1/p' README.md)
[ -n "$command" ] || { echo "README.md has no line that begins with make test." >&2; exit 1; }

# What Debian installs, without the programs that a bare machine lacks.
mkdir "$home/bin"
for program in /usr/bin/* /bin/*; do
    case ${program##*/} in
        *cc | *cc-[0-9]* | *[cg]++* | cpp* | clang* | redis-* | memcached | postgres | chrom* | node* | npm) ;;
        *) ln -sf "$program" "$home/bin/" ;;
    esac
done

git clone --quiet . "$home/wheelcache"
user=""
if [ "$(id -u)" -eq 0 ]; then
    chown -R nobody "$home"
    user="setpriv --reuid=nobody --regid=nogroup --clear-groups"
fi
cd "$home/wheelcache"
# shellcheck disable=SC2086  # both are lists of words
env -i PATH="$home/bin" HOME="$home" $user $command
