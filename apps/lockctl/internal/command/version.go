package command

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version describes this build; field names are those of the JSON output.
type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// thisVersion reads what the build recorded about itself.
func thisVersion() version {
	v := version{Version: "(devel)", Revision: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			v.Revision = setting.Value
		}
	}
	return v
}

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of lockctl (doctor prints the server's)",
		Args:  cobra.NoArgs,
		RunE: p.raw(func(*cobra.Command, []string) error {
			v := thisVersion()
			if !p.json {
				_, err := fmt.Fprintf(p.streams.Out, "lockctl %s, revision %s, %s, %s\n", v.Version, v.Revision, v.Go, v.Platform)
				return written(err)
			}
			return written(json.NewEncoder(p.streams.Out).Encode(v))
		}),
	}
}
