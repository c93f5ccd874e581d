package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// dockerLimit bounds one call to the daemon.
const dockerLimit = time.Minute

// contained is how a program runs in a container of one of its images.
type contained struct {
	entrypoint []string
	args       []string
	env        map[string]string
	// user is the image's own if empty.
	user string
	// port is where it listens, such as 2379/tcp, data the folder of its data.
	port string
	data string
	// stop is the signal that ends it in good order.
	stop string
}

// inDocker is a server in a container.
type inDocker struct {
	docker    *testcontainers.DockerClient
	container testcontainers.Container
	address   string
	watcher   *watcher
}

func newContainer(ctx context.Context, version string, p store) (host, error) {
	docker, err := openDocker(ctx)
	if err != nil {
		return nil, err
	}
	d := &inDocker{docker: docker}
	if err := d.create(ctx, version, p); err != nil {
		return nil, errors.Join(err, d.remove())
	}
	return d, nil
}

func (d *inDocker) create(ctx context.Context, version string, p store) error {
	image, err := findImage(ctx, d.docker, p, version)
	if err != nil {
		return err
	}
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read host name: %w", err)
	}
	// A port of our choice: one that Docker chooses is another one after a restart.
	address, err := freeAddress()
	if err != nil {
		return err
	}
	host, err := dockerHost(ctx, d.docker)
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("read port: %w", err)
	}
	published := network.PortBinding{HostPort: port}
	if host == "127.0.0.1" || host == "localhost" {
		published.HostIP = netip.MustParseAddr("127.0.0.1")
	}
	d.address = p.endpoint(net.JoinHostPort(host, port))
	plan := p.contained(d.address)
	d.container, err = testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{
		ContainerRequest: testcontainers.ContainerRequest{
			Image:        image,
			Entrypoint:   plan.entrypoint,
			Cmd:          plan.args,
			Env:          plan.env,
			ExposedPorts: []string{plan.port},
			Labels:       map[string]string{labelHost: name, labelPID: strconv.Itoa(os.Getpid())},
			ConfigModifier: func(config *container.Config) {
				config.User = plan.user
				config.StopSignal = plan.stop
			},
			HostConfigModifier: func(config *container.HostConfig) {
				config.PortBindings = network.PortMap{network.MustParsePort(plan.port): {published}}
				// A volume is on the machine's disk; the layers of an image are not, and slow to sync.
				config.Mounts = append(config.Mounts, mount.Mount{Type: mount.TypeVolume, Target: plan.data})
			},
		},
	})
	if err != nil {
		return fmt.Errorf("create container: %w", err)
	}
	d.watcher, err = watchContainer(d.container.GetContainerID(), d.docker.DaemonHost())
	return err
}

func (d *inDocker) endpoint() string { return d.address }

func (d *inDocker) id() string { return d.container.GetContainerID() }

func (d *inDocker) start(ctx context.Context) error {
	if _, err := d.docker.ContainerStart(ctx, d.id(), client.ContainerStartOptions{}); err != nil {
		return fmt.Errorf("start container: %w", err)
	}
	return nil
}

func (d *inDocker) stop() error {
	return d.ask("stop", func(ctx context.Context) error {
		seconds := int(stopLimit.Seconds())
		_, err := d.docker.ContainerStop(ctx, d.id(), client.ContainerStopOptions{Timeout: &seconds})
		return err
	})
}

func (d *inDocker) kill() error {
	return d.ask("kill", func(ctx context.Context) error {
		state, err := d.state(ctx)
		if err != nil || !state.Running {
			return err
		}
		// A frozen process cannot be killed.
		if state.Paused {
			if _, err := d.docker.ContainerUnpause(ctx, d.id(), client.ContainerUnpauseOptions{}); err != nil {
				return err
			}
		}
		ended := d.docker.ContainerWait(ctx, d.id(), client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
		if _, err := d.docker.ContainerKill(ctx, d.id(), client.ContainerKillOptions{Signal: "SIGKILL"}); err != nil {
			return err
		}
		select {
		case <-ended.Result:
			return nil
		case err := <-ended.Error:
			return err
		}
	})
}

func (d *inDocker) pause() error {
	return d.ask("pause", func(ctx context.Context) error {
		_, err := d.docker.ContainerPause(ctx, d.id(), client.ContainerPauseOptions{})
		return err
	})
}

func (d *inDocker) resume() error {
	return d.ask("resume", func(ctx context.Context) error {
		_, err := d.docker.ContainerUnpause(ctx, d.id(), client.ContainerUnpauseOptions{})
		return err
	})
}

func (d *inDocker) remove() error {
	var removed error
	if d.container != nil {
		removed = d.ask("remove", func(ctx context.Context) error {
			_, err := d.docker.ContainerRemove(ctx, d.id(), client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
			return err
		})
	}
	return errors.Join(removed, d.watcher.stop(), d.docker.Close())
}

func (d *inDocker) ended() error {
	return d.ask("inspect", func(ctx context.Context) error {
		state, err := d.state(ctx)
		if err == nil && !state.Running {
			err = fmt.Errorf("exit status %d", state.ExitCode)
		}
		return err
	})
}

func (d *inDocker) state(ctx context.Context) (*container.State, error) {
	found, err := d.docker.ContainerInspect(ctx, d.id(), client.ContainerInspectOptions{})
	if err != nil {
		return nil, err
	}
	return found.Container.State, nil
}

func (d *inDocker) log() string {
	var text []byte
	err := d.ask("read log", func(ctx context.Context) error {
		reader, err := d.container.Logs(ctx)
		if err != nil {
			return err
		}
		defer reader.Close()
		text, err = io.ReadAll(reader)
		return err
	})
	return string(text) + errorText(err)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// ask bounds one call to the daemon; it also works while the test's context is over.
func (d *inDocker) ask(act string, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), dockerLimit)
	defer cancel()
	if err := call(ctx); err != nil {
		return fmt.Errorf("%s container: %w", act, err)
	}
	return nil
}

// watchContainer removes the container when this process is gone. Without docker's command line nothing
// does, and sweep has to do.
func watchContainer(id, daemon string) (*watcher, error) {
	docker, err := exec.LookPath("docker")
	if err != nil {
		return nil, nil //nolint:nilnil,nilerr // No watcher is what stop expects.
	}
	return watch(`exec "$1" rm -f -v "$2"`, []string{"DOCKER_HOST=" + daemon}, docker, id)
}
