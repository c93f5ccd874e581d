package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

// Limits of what a daemon is asked: does it live, and can it fetch an image.
const (
	pingLimit = 5 * time.Second
	pullLimit = time.Minute
)

// Labels tell whose a container is, so that the next run can remove what a dead one left.
const (
	labelHost = "org.fencelock.testenv.host"
	labelPID  = "org.fencelock.testenv.pid"
)

//nolint:gochecknoglobals // The library reads its environment once per process.
var setUpOnce sync.Once

// openDocker connects to the daemon and tidies up after dead runs.
func openDocker(ctx context.Context) (*testcontainers.DockerClient, error) {
	setUpOnce.Do(setUp)
	// The library's own check has no limit.
	ctx, cancel := context.WithTimeout(ctx, pingLimit)
	defer cancel()
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to Docker: %w", err)
	}
	// The library tries other sockets where the named one is dead.
	if named := os.Getenv("DOCKER_HOST"); named != "" && docker.DaemonHost() != named {
		return nil, errors.Join(fmt.Errorf("no Docker daemon answers at %s", named), docker.Close())
	}
	if _, err := docker.Ping(ctx, client.PingOptions{}); err != nil {
		return nil, errors.Join(fmt.Errorf("no Docker daemon answers: %w", err), docker.Close())
	}
	if err := sweep(ctx, docker); err != nil {
		return nil, errors.Join(err, docker.Close())
	}
	return docker, nil
}

// setUp keeps the library quiet, and its reaper out: a further image, which not every machine can
// have. What it does is done here by the watcher of each container, and by sweep.
func setUp() {
	log.SetDefault(log.NewNoopLogger())
	const reaper = "TESTCONTAINERS_RYUK_DISABLED"
	if _, set := os.LookupEnv(reaper); !set {
		_ = os.Setenv(reaper, "true")
	}
}

// sweep removes containers whose test process on this machine is gone.
func sweep(ctx context.Context, docker *testcontainers.DockerClient) error {
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read host name: %w", err)
	}
	found, err := docker.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: client.Filters{}.Add("label", labelHost+"="+name),
	})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	for _, c := range found.Items {
		pid, err := strconv.Atoi(c.Labels[labelPID])
		if err != nil || !gone(pid) {
			continue
		}
		// Another run may be at it too; what stays is tried again by the next.
		_, _ = docker.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	}
	return nil
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// findImage returns an image of the version that is there, or could be pulled.
func findImage(ctx context.Context, docker *testcontainers.DockerClient, p store, version string) (string, error) {
	built, official := p.images(version)
	for _, image := range append([]string{built}, official...) {
		if _, err := docker.ImageInspect(ctx, image); err == nil {
			return image, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, pullLimit)
	defer cancel()
	var failed []error
	for _, image := range official {
		err := pull(ctx, docker, image)
		if err == nil {
			return image, nil
		}
		failed = append(failed, err)
	}
	return "", fmt.Errorf("no image %s; run `make images`: %w", built, errors.Join(failed...))
}

func pull(ctx context.Context, docker *testcontainers.DockerClient, image string) error {
	answer, err := docker.ImagePull(ctx, image, client.ImagePullOptions{})
	if err != nil {
		return fmt.Errorf("pull %s: %w", image, err)
	}
	return errors.Join(answer.Wait(ctx), answer.Close())
}
