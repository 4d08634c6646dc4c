#!/bin/sh
# Installs the Debian packages that the tests need and this machine lacks, or says which they are.
set -eu

missing=""
"${PYTHON:-python3}" -c "import ensurepip, venv" 2>/dev/null || missing="$missing python3-venv"
# A compiler and Python's headers, for the core that tests/core compiles.
command -v cc >/dev/null || missing="$missing gcc"
"${PYTHON:-python3}" -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null \
    || missing="$missing python3-dev"
command -v redis-server >/dev/null || missing="$missing redis-server"
command -v memcached >/dev/null || missing="$missing memcached"
[ -x /usr/bin/chromium ] || missing="$missing chromium"
[ -x /usr/bin/chromedriver ] || missing="$missing chromium-driver"
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "The tests need what Debian's packages$missing contain: install it first, since there is no apt-get here." >&2
    exit 1
elif [ "$(id -u)" -eq 0 ]; then
    as_root=env
elif sudo -n true 2>/dev/null; then
    as_root="sudo -n env"
else
    echo "The tests need these Debian packages, which only root may install: apt-get install$missing" >&2
    exit 1
fi

echo "Installing the Debian packages$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt="$as_root DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0"
# shellcheck disable=SC2086  # both are lists of words
if ! { $apt update && $apt install -y $missing; } >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
