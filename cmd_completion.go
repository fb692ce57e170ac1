package main

// gpuctl completion SHELL: the script that makes a shell ask this program (cmd_complete.go) what fits.

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// completionScripts are small on purpose: all that is known is in the command table.
func completionScripts() map[string]string {
	return map[string]string{
		"bash": `# gpuctl completion for bash: source <(gpuctl completion bash)
_gpuctl() {
	local value help
	COMPREPLY=()
	while IFS=$'\t' read -r value help; do
		printf -v value %q "$value"
		COMPREPLY+=("$value")
	done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _gpuctl gpuctl
`,
		"zsh": `#compdef gpuctl
# gpuctl completion for zsh: source <(gpuctl completion zsh)
_gpuctl() {
	local -a found
	local value help
	while IFS=$'\t' read -r value help; do
		found+=("${value//:/\\:}:$help")
	done < <("${words[1]}" __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)
	if (( $#found )); then _describe gpuctl found; else _files; fi
}
compdef _gpuctl gpuctl
`,
		"fish": `# gpuctl completion for fish: gpuctl completion fish | source
function __gpuctl_complete
	set -l words (commandline -opc) (commandline -ct)
	$words[1] __complete $words[2..-1] 2>/dev/null
end
complete -c gpuctl -f -n 'not contains -- -- (commandline -opc)' -a '(__gpuctl_complete)'
`,
	}
}

func completionCommand() command {
	return command{
		words: "completion", args: "SHELL", short: "Print the completion script of bash, zsh or fish",
		long: `bash: source <(gpuctl completion bash), in ~/.bashrc; zsh: the same in ~/.zshrc, after compinit;
fish: gpuctl completion fish > ~/.config/fish/completions/gpuctl.fish`,
		setup: func(c *cli, fs *pflag.FlagSet) runFunc {
			return func(_ context.Context, args []string) error {
				if err := argCount(args, 1, 1, "SHELL"); err != nil {
					return err
				}
				scripts := completionScripts()
				text, ok := scripts[args[0]]
				if !ok {
					known := strings.Join(slices.Sorted(maps.Keys(scripts)), "|")
					return newProblem(codeUsage, "gpuctl completion "+known, "there is no completion for %q", args[0])
				}
				_, err := io.WriteString(c.out, text)
				return err
			}
		},
	}
}

func completeCommand() command {
	return command{
		words: "__complete", args: "WORDS...", short: "Internal: what fits as the last of these words", hidden: true, raw: true,
		setup: func(c *cli, fs *pflag.FlagSet) runFunc { return c.complete },
	}
}
