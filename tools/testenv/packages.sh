#!/usr/bin/env bash
# Installs the programs that the tests need and this machine lacks, where packages are Debian's: the
# server programs of PostgreSQL, pgbouncer, and beside Docker what builds an image of PostgreSQL.
# Elsewhere it says what is missing; a test that needs it fails then, and says so too.
set -euo pipefail

have() { PATH=$PATH:/usr/sbin command -v "$1" >/dev/null; }

missing=()
have initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
have pgbouncer || missing+=(pgbouncer)
have ps || missing+=(procps)
if docker info >/dev/null 2>&1; then
  have mmdebstrap || missing+=(mmdebstrap)
fi

if [ ${#missing[@]} -eq 0 ]; then
  echo "packages: all there"
elif have apt-get && [ "$(id -u)" -eq 0 ]; then
  echo "packages: installing ${missing[*]}"
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends "${missing[@]}" >/dev/null
else
  echo "packages: missing ${missing[*]}; install them" >&2
  exit 1
fi
