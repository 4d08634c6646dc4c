#!/bin/sh
# Installs the Debian packages that the tests need and this machine lacks, if the user agrees or INSTALL_PACKAGES is 1.
# Otherwise it names them. It fetches promtool alone, into .fetched, without asking, since this installs nothing: Debian 12
# has it in the package prometheus, which would start a server, later ones in its own.
set -eu

missing=""
"${PYTHON:-python3}" -c "import ensurepip, venv" 2>/dev/null || missing="$missing python3-venv"
# A compiler and Python's headers, for the core that tests/core compiles.
command -v cc >/dev/null || missing="$missing gcc libc6-dev"
"${PYTHON:-python3}" -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null \
    || missing="$missing python3-dev"
command -v redis-server >/dev/null || missing="$missing redis-server"
command -v postgres >/dev/null || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$missing postgresql"
command -v dot >/dev/null || missing="$missing graphviz"
command -v memcached >/dev/null || missing="$missing memcached"
[ -x /usr/bin/chromium ] || missing="$missing chromium fonts-liberation"
[ -x /usr/bin/chromedriver ] || missing="$missing chromium-driver"
# For the tests of http-cache-tests, which npm installs.
command -v node >/dev/null || missing="$missing nodejs"
command -v npm >/dev/null || missing="$missing npm"
promtool=""
command -v promtool >/dev/null || [ -x .fetched/promtool ] || promtool=" prometheus"
[ -n "$missing$promtool" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "The tests need what Debian's packages$missing$promtool contain: install it first, since there is no apt-get here." >&2
    exit 1
elif [ "$(id -u)" -eq 0 ]; then
    as_root=env
elif sudo -n true 2>/dev/null; then
    as_root="sudo -n env"
elif [ -n "$missing" ]; then
    echo "The tests need these Debian packages, which only root may install: apt-get install$missing" >&2
    exit 1
else
    as_root=""
fi

agreed() {
    [ "${INSTALL_PACKAGES:-}" != 1 ] || return 0
    [ -t 0 ] && [ -t 2 ] || return 1
    echo "The tests need these Debian packages, and packages that those depend on:$missing" >&2
    # "After this operation, 1,234 MB of additional disk space will be used."
    # shellcheck disable=SC2086  # a list of words
    apt-get --assume-no --no-install-recommends install $missing 2>/dev/null | grep "disk space" >&2 || true
    printf "Install them? [y/N] " >&2
    read -r answer
    [ "$answer" = y ] || [ "$answer" = Y ]
}

if [ -n "$missing" ] && ! agreed; then
    echo "The tests need Debian packages that are missing. To install them: apt-get install$missing" >&2
    echo "With INSTALL_PACKAGES=1, make does it without asking. make test needs none of them." >&2
    exit 1
fi

fetch_promtool() (
    package=prometheus
    ! apt-cache show promtool >/dev/null 2>&1 || package=promtool
    rm -rf .fetched/promtool.deb && mkdir -p .fetched/promtool.deb && cd .fetched/promtool.deb \
        && apt-get -qq download "$package" && dpkg-deb -x "$package"_*.deb . && mv usr/bin/promtool .. \
        && cd .. && rm -rf promtool.deb
)

[ -z "$missing" ] || echo "Installing the Debian packages$missing"
[ -z "$promtool" ] || echo "Fetching promtool from Debian's packages"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt="$as_root DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0"
# shellcheck disable=SC2086  # both are lists of words
if ! {
    { [ -z "$as_root" ] || $apt update; } \
        && { [ -z "$missing" ] || $apt install -y --no-install-recommends $missing; } \
        && { [ -z "$promtool" ] || fetch_promtool; }
} >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
