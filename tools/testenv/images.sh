#!/usr/bin/env bash
# Makes the container images that the tests use: official ones where they can be pulled, else our own,
# etcd built from its Go module and PostgreSQL from Debian's packages. Says and does nothing more where
# an image is there already.
#
#   images.sh                     both, in the versions that the tests take
#   images.sh etcd [VERSION]      one of them
#   images.sh postgres [MAJOR]
set -euo pipefail
cd "$(dirname "$0")"

# default NAME: the constant in testenv.go.
default() { sed -n "s/^\t$1 *= \"\(.*\)\"$/\1/p" testenv.go; }

# have OURS OFFICIAL...: whether one of the images is there, or could be pulled.
have() {
  local image
  for image in "$@"; do
    if docker image inspect "$image" >/dev/null 2>&1; then
      echo "images: $image is there"
      return
    fi
  done
  shift
  for image in "$@"; do
    if timeout "${FENCELOCK_TEST_PULL_SECONDS:-30}" docker pull --quiet "$image" >/dev/null 2>&1; then
      echo "images: pulled $image"
      return
    fi
  done
  return 1
}

etcd() {
  local version=${1:-${FENCELOCK_TEST_ETCD_VERSION:-$(default EtcdVersion)}}
  local ours=fencelock/etcd-test:$version pinned
  have "$ours" gcr.io/etcd-development/etcd:v"$version" quay.io/coreos/etcd:v"$version" && return
  pinned=$(sed -n 's|^require go.etcd.io/etcd/server/v3 v||p' etcd/go.mod)
  if [ "$version" != "$pinned" ]; then
    echo "images: etcd $version cannot be pulled, and only $pinned is built here" >&2
    return 1
  fi
  echo "images: no official image can be had; building $ours"
  GOWORK=off GOFLAGS='' CGO_ENABLED=0 GOOS=linux GOARCH=$arch \
    go -C etcd build -trimpath -buildvcs=false -o "$scratch/etcd/usr/local/bin/etcd" . || return
  tar -C "$scratch/etcd" -c . | docker import --change 'ENTRYPOINT ["/usr/local/bin/etcd"]' - "$ours" >/dev/null || return
  echo "images: built $ours"
}

postgres() {
  local version=${1:-${FENCELOCK_TEST_POSTGRES_VERSION:-$(default PostgresVersion)}}
  local ours=fencelock/postgres-test:$version suite mirror
  have "$ours" postgres:"$version" && return
  case $version in
    15) suite=bookworm ;;
    17) suite=trixie ;;
    18) suite=forky ;;
    *) echo "images: PostgreSQL $version cannot be pulled, and no Debian release has it" >&2; return 1 ;;
  esac
  if ! command -v mmdebstrap >/dev/null; then
    echo "images: PostgreSQL $version cannot be pulled; install mmdebstrap, and it is made from Debian's packages" >&2
    return 1
  fi
  # From where, and how, this machine's apt gets its own packages.
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | sort -u | head -n 1)
  apt-config dump --no-empty Acquire >"$scratch/apt.conf"
  echo "images: no official image can be had; building $ours"
  # Its cluster is made at each start, by the tests.
  mmdebstrap --quiet --variant=minbase --architectures="$arch" --include="postgresql-$version" \
    --aptopt="$scratch/apt.conf" --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='rm -rf "$1/var/lib/postgresql/'"$version"'"' \
    "$suite" "$scratch/postgres.tar" "${mirror:-http://deb.debian.org/debian}" || return
  docker import --change 'USER postgres' "$scratch/postgres.tar" "$ours" >/dev/null || return
  echo "images: built $ours"
}

if ! docker info >/dev/null 2>&1; then
  echo "images: no Docker daemon answers; start one" >&2
  exit 1
fi
arch=$(docker version --format '{{.Server.Arch}}')
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

case ${1:-both} in
  etcd | postgres) "$@" ;;
  both)
    failed=0
    etcd || failed=1
    postgres || failed=1
    exit $failed
    ;;
  *) sed -n 's/^#   //p' images.sh >&2; exit 2 ;;
esac
