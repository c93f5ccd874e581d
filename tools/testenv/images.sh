#!/usr/bin/env bash
# Makes the container images that the tests use: the official one where it can be pulled, else one
# built from etcd's Go module. Says and does nothing more where an image is there already.
set -euo pipefail
cd "$(dirname "$0")"

version=${FENCELOCK_TEST_ETCD_VERSION:-$(sed -n 's/^const EtcdVersion = "\(.*\)"$/\1/p' testenv.go)}
built=fencelock/etcd-test:$version
official=(gcr.io/etcd-development/etcd:v"$version" quay.io/coreos/etcd:v"$version")

if ! docker info >/dev/null 2>&1; then
  echo "images: no Docker daemon answers; start one" >&2
  exit 1
fi

for image in "$built" "${official[@]}"; do
  if docker image inspect "$image" >/dev/null 2>&1; then
    echo "images: $image is there"
    exit 0
  fi
done

for image in "${official[@]}"; do
  if timeout "${FENCELOCK_PULL_SECONDS:-30}" docker pull --quiet "$image" >/dev/null 2>&1; then
    echo "images: pulled $image"
    exit 0
  fi
done

pinned=$(sed -n 's|^require go.etcd.io/etcd/server/v3 v||p' etcd/go.mod)
if [ "$version" != "$pinned" ]; then
  echo "images: etcd $version cannot be pulled, and only $pinned is built here" >&2
  exit 1
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
echo "images: no official image can be had; building $built"
GOWORK=off GOFLAGS='' CGO_ENABLED=0 GOOS=linux GOARCH="$(docker version --format '{{.Server.Arch}}')" \
  go -C etcd build -trimpath -buildvcs=false -o "$root/usr/local/bin/etcd" .
tar -C "$root" -c . | docker import --change 'ENTRYPOINT ["/usr/local/bin/etcd"]' - "$built" >/dev/null
echo "images: built $built"
