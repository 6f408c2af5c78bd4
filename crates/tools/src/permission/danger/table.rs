//! The table of known programs and of the arguments that a broad rule does not cover.

use super::Effect::{self, Loads, Runs, Writes};

/// A program, under all its names.
pub(super) struct Program {
    pub names: &'static [&'static str],
    pub marks: &'static [Mark],
}

/// Which words of a command line are marked.
pub(super) enum Mark {
    /// The whole command line: the program runs what its arguments say. Only an exact rule covers it.
    Everything,
    /// The script file of an interpreter, or the whole line when no script file is named first.
    Script,
    /// The first argument that is not an option: a sub-command that the project or the network defines.
    FirstWord(Effect),
    /// `--long` options, also abbreviated and with `=value`.
    Long(Effect, &'static [&'static str]),
    /// Letters in a group of short options (any group that has the letter, so this errs on asking).
    Short(Effect, &'static [char]),
    /// The same, but only before the first argument that is not an option.
    ShortBeforeCommand(Effect, &'static [char]),
    /// Letters in a first argument without a dash, as `tar xf` has it.
    FirstCluster(Effect, &'static [char]),
    /// Long options with one dash or two, matched whole.
    Word(Effect, &'static [&'static str]),
    /// These sub-commands.
    SubCommand(Effect, &'static [&'static str]),
    /// Every sub-command but these.
    OnlySubCommands(Effect, &'static [&'static str]),
    /// Any argument with one of these in it.
    Containing(Effect, &'static [&'static str]),
    /// Arguments that set a variable that changes how programs behave.
    Assigning,
    /// `NAME=value` arguments.
    Variables,
    /// Arguments that may be sed scripts.
    SedScript,
    /// Arguments that may be awk programs.
    AwkProgram,
}

use Mark::{
    Assigning, AwkProgram, Containing, Everything, FirstCluster, FirstWord, Long, OnlySubCommands, Script, SedScript,
    Short, ShortBeforeCommand, SubCommand, Variables, Word,
};

/// Git's own commands that neither run a program named in arguments or configuration nor change configuration.
/// Anything else may be an alias, and an alias may be a shell command.
const GIT_COMMANDS: &[&str] = &[
    "add", "am", "annotate", "apply", "archive", "blame", "branch", "bundle", "cat-file", "check-attr", "check-ignore",
    "checkout", "cherry", "cherry-pick", "clean", "clone", "commit", "count-objects", "describe", "diff", "diff-files",
    "diff-index", "diff-tree", "fetch", "for-each-ref", "format-patch", "fsck", "gc", "grep", "hash-object", "help",
    "init", "log", "ls-files", "ls-remote", "ls-tree", "merge", "merge-base", "mv", "name-rev", "notes", "prune",
    "pull", "push", "range-diff", "rebase", "reflog", "remote", "reset", "restore", "rev-list", "rev-parse", "revert",
    "rm", "shortlog", "show", "show-branch", "show-ref", "sparse-checkout", "stash", "status", "switch",
    "symbolic-ref", "tag", "verify-commit", "verify-tag", "version", "whatchanged", "worktree", "write-tree",
];

/// All known programs. A program that is not here has no marked arguments.
pub(super) const PROGRAMS: &[Program] = &[
    Program {
        names: &[
            "env", "xargs", "sudo", "doas", "su", "runuser", "nohup", "timeout", "gtimeout", "nice", "ionice", "time",
            "watch", "watchexec", "entr", "ssh", "mosh", "eval", "exec", "command", "builtin", ".", "source", "trap",
            "alias", "unalias", "enable", "hash", "bind", "complete", "compgen", "npx", "pnpx", "bunx", "uvx", "pipx",
            "setsid", "setpriv", "stdbuf", "chroot", "unshare", "nsenter", "bwrap", "firejail", "flock", "parallel",
            "strace", "ltrace", "perf", "valgrind", "gdb", "lldb", "script", "expect", "unbuffer", "tmux", "screen",
            "systemd-run", "at", "batch", "crontab", "taskset", "chrt", "rlwrap", "busybox", "toybox", "coproc", "set",
            "shopt", "vi", "vim", "nvim", "view", "ex", "ed", "emacs", "nano", "less", "more", "man", "sqlite3",
            "psql", "mysql", "mariadb", "openssl", "run-parts", "start-stop-daemon", "dbus-run-session", "xvfb-run",
            "direnv", "nix", "nix-shell", "guix", "conda", "mamba", "rustup", "proxychains", "torsocks", "faketime",
            "ts-node", "tsx", "socat", "nc", "ncat", "telnet", "fc", "let",
        ],
        marks: &[Everything],
    },
    Program {
        names: &[
            "bash", "sh", "dash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "rbash", "python", "pypy", "ipython",
            "node", "nodejs", "perl", "ruby", "irb", "php", "lua", "luajit", "R", "Rscript", "osascript", "pwsh",
            "powershell", "tclsh", "wish", "guile", "racket", "ghci", "runghc", "jshell", "java", "groovy", "scala",
            "kotlin", "julia", "elixir", "iex", "erl", "escript", "ocaml", "swipl", "bc", "m4",
        ],
        marks: &[Script],
    },
    Program {
        names: &[
            "npm", "pnpm", "yarn", "bun", "pip", "uv", "poetry", "pdm", "hatch", "gem", "bundle", "composer", "deno",
            "docker", "podman", "kubectl", "helm", "gradle", "gradlew", "mvn", "mvnw", "gh", "glab", "just", "task",
            "rake", "invoke", "tox", "nox", "ant", "bazel", "buck2", "meson", "dotnet", "mix", "rebar3", "stack",
            "cabal", "lein", "sbt", "pre-commit", "husky", "lerna", "nx", "turbo", "brew", "apt", "apt-get", "dnf",
            "yum", "pacman", "snap", "systemctl", "service", "terraform", "ansible", "vagrant", "aws", "gcloud", "az",
        ],
        marks: &[FirstWord(Runs)],
    },
    Program {
        names: &["git"],
        marks: &[
            ShortBeforeCommand(Loads, &['c', 'C', 'p']),
            Long(
                Runs,
                &[
                    "--exec-path", "--upload-pack", "--receive-pack", "--exec", "--ext-diff", "--textconv",
                    "--open-files-in-pager", "--extcmd", "--tool", "--filter", "--index-filter", "--paginate",
                    "--gpg-sign",
                ],
            ),
            Long(
                Loads,
                &[
                    "--config-env", "--config", "--git-dir", "--work-tree", "--namespace", "--template",
                    "--super-prefix", "--attr-source", "--reference", "--orderfile", "--pathspec-from-file",
                ],
            ),
            Long(Writes, &["--output", "--output-directory", "--separate-git-dir", "--directory", "--prefix"]),
            Short(Runs, &['O', 'x', 'u']),
            Short(Writes, &['o']),
            OnlySubCommands(Runs, GIT_COMMANDS),
            Containing(Runs, &["ext::", "fd::", "!"]),
        ],
    },
    Program {
        names: &["rg", "ripgrep"],
        marks: &[Long(Runs, &["--pre", "--hostname-bin", "--search-zip"]), Short(Runs, &['z']), Short(Loads, &['f'])],
    },
    Program {
        names: &["grep", "egrep", "fgrep", "zgrep", "ag", "ack"],
        marks: &[Long(Runs, &["--pager", "--filter", "--output"]), Short(Loads, &['f'])],
    },
    Program {
        names: &["fd", "fdfind"],
        marks: &[Short(Runs, &['x', 'X']), Long(Runs, &["--exec", "--exec-batch"])],
    },
    Program {
        names: &["find", "gfind"],
        marks: &[
            Word(Runs, &["exec", "execdir", "ok", "okdir"]),
            Word(Writes, &["delete", "fprint", "fprint0", "fprintf", "fls"]),
            Word(Loads, &["files0-from"]),
        ],
    },
    Program {
        names: &["sort", "gsort"],
        marks: &[
            Short(Writes, &['o', 'T']),
            Long(Writes, &["--output", "--temporary-directory"]),
            Long(Runs, &["--compress-program"]),
            Long(Loads, &["--files0-from"]),
        ],
    },
    Program {
        names: &["tar", "gtar", "bsdtar"],
        marks: &[
            Long(
                Runs,
                &[
                    "--to-command", "--checkpoint-action", "--use-compress-program", "--rsh-command", "--rmt-command",
                    "--info-script", "--new-volume-script",
                ],
            ),
            Long(Writes, &["--absolute-names", "--directory", "--one-top-level", "--index-file", "--remove-files"]),
            Long(Loads, &["--files-from"]),
            Short(Runs, &['I', 'F']),
            Short(Writes, &['P', 'C']),
            FirstCluster(Runs, &['I', 'F', 'P', 'C']),
        ],
    },
    Program {
        names: &["sed", "gsed"],
        marks: &[Short(Writes, &['i']), Short(Loads, &['f']), Long(Writes, &["--in-place"]), Long(Loads, &["--file"]), SedScript],
    },
    Program {
        names: &["awk", "gawk", "mawk", "nawk"],
        marks: &[
            Short(Loads, &['f', 'i', 'l', 'E', 'o', 'd', 'p', 'D']),
            Long(Loads, &["--file", "--include", "--load", "--exec", "--source"]),
            Long(Writes, &["--pretty-print", "--dump-variables", "--profile", "--debug"]),
            AwkProgram,
        ],
    },
    Program {
        names: &["curl"],
        marks: &[
            Short(Writes, &['o', 'O', 'D', 'c', 'J']),
            Short(Loads, &['K', 'T', 'd', 'F', 'b', 'E', 'n', 'X']),
            Long(
                Writes,
                &[
                    "--output", "--output-dir", "--remote-name", "--remote-name-all", "--remote-header-name",
                    "--dump-header", "--cookie-jar", "--trace", "--trace-ascii", "--stderr", "--libcurl",
                    "--etag-save", "--hsts", "--alt-svc", "--create-dirs",
                ],
            ),
            Long(
                Loads,
                &[
                    "--config", "--upload-file", "--data", "--data-ascii", "--data-binary", "--data-raw",
                    "--data-urlencode", "--json", "--form", "--form-string", "--netrc", "--netrc-file", "--cert",
                    "--key", "--engine", "--cookie", "--request", "--unix-socket", "--proxy", "--variable",
                ],
            ),
            Containing(Loads, &["file:"]),
        ],
    },
    Program {
        names: &["wget"],
        marks: &[
            Short(Writes, &['O', 'o', 'a', 'P']),
            Short(Loads, &['e', 'i']),
            Long(Writes, &["--output-document", "--output-file", "--append-output", "--directory-prefix", "--save-cookies", "--warc-file"]),
            Long(Runs, &["--use-askpass"]),
            Long(Loads, &["--execute", "--config", "--input-file", "--post-file", "--body-file", "--load-cookies"]),
        ],
    },
    Program {
        names: &["scp", "sftp", "rsync"],
        marks: &[
            Short(Runs, &['o', 'S', 'e', 'D']),
            Short(Loads, &['F', 'b']),
            Long(Runs, &["--rsh", "--rsync-path"]),
            Long(Writes, &["--log-file", "--backup-dir", "--partial-dir", "--temp-dir", "--write-batch"]),
            Long(Loads, &["--config", "--files-from", "--password-file", "--filter"]),
        ],
    },
    Program {
        names: &["make", "gmake", "ninja"],
        marks: &[
            Short(Loads, &['f', 'C', 'I', 'E']),
            Long(Loads, &["--file", "--makefile", "--directory", "--include-dir", "--eval"]),
            Variables,
        ],
    },
    Program {
        names: &["cmake", "ctest"],
        marks: &[
            Short(Runs, &['E', 'P', 'S', 'D', 'C']),
            Long(Runs, &["--build-and-test", "--install", "--script", "--toolchain", "--test-command"]),
        ],
    },
    Program {
        names: &["cargo"],
        marks: &[
            Long(Loads, &["--config", "--manifest-path"]),
            Short(Loads, &['Z', 'C']),
            Long(Writes, &["--target-dir", "--out-dir", "--artifact-dir", "--root"]),
            OnlySubCommands(
                Runs,
                &[
                    "b", "bench", "build", "c", "check", "clean", "clippy", "d", "doc", "fetch", "fix", "fmt",
                    "generate-lockfile", "help", "info", "locate-project", "metadata", "nextest", "pkgid", "r", "run",
                    "search", "t", "test", "tree", "update", "vendor", "verify-project", "version",
                ],
            ),
        ],
    },
    Program {
        names: &["go"],
        marks: &[
            Word(Runs, &["exec", "toolexec", "vettool", "ldflags", "gcflags", "asmflags", "gccgoflags"]),
            Word(Writes, &["o", "outputdir", "coverprofile", "cpuprofile", "memprofile", "trace", "w", "u"]),
            Word(Loads, &["overlay", "modfile", "C", "pgo"]),
            SubCommand(Runs, &["run", "generate", "tool", "install", "get", "bug", "telemetry"]),
        ],
    },
    Program {
        names: &["gcc", "g++", "cc", "c++", "clang", "clang++", "ld", "rustc"],
        marks: &[
            Short(Writes, &['o']),
            Word(Runs, &["wrapper", "specs", "fplugin", "load", "Xclang", "linker", "C", "Z", "B"]),
            Containing(Loads, &["@", "-fplugin", "-specs", "linker="]),
        ],
    },
    Program {
        names: &["pytest", "mypy", "ruff", "black", "eslint", "prettier", "jest", "vitest", "mocha", "tsc", "rustfmt"],
        marks: &[
            Short(Loads, &['c', 'p', 'r', 'o']),
            Long(
                Loads,
                &[
                    "--config", "--config-file", "--config-path", "--confcutdir", "--rootdir", "--plugin", "--rulesdir",
                    "--resolve-plugins-relative-to", "--require", "--loader", "--import", "--project", "--python-executable",
                    "--override-ini", "--globalSetup", "--setupFiles", "--runner", "--transform", "--file",
                ],
            ),
            Long(Writes, &["--output-file", "--outfile", "--outDir", "--cache-dir", "--basetemp", "--junitxml"]),
        ],
    },
    Program {
        names: &["export", "declare", "typeset", "local", "readonly", "read", "mapfile", "readarray", "getopts", "unset"],
        marks: &[Assigning, Short(Runs, &['C', 'f'])],
    },
    Program { names: &["printf", "wait"], marks: &[Short(Loads, &['v', 'p'])] },
    Program { names: &["test", "["], marks: &[Short(Runs, &['v', 'R'])] },
    Program { names: &["yq", "jq"], marks: &[Short(Writes, &['i']), Short(Loads, &['f', 'L']), Long(Loads, &["--from-file", "--inplace"])] },
    Program { names: &["tree", "iconv", "xxd", "uniq", "column"], marks: &[Short(Writes, &['o', 'r']), Long(Writes, &["--output"])] },
    Program { names: &["date", "hostname", "sysctl"], marks: &[Short(Writes, &['s', 'w', 'F', 'p']), Long(Writes, &["--set", "--write"])] },
    Program { names: &["file"], marks: &[Short(Writes, &['C']), Short(Loads, &['m', 'f', 'z'])] },
    Program { names: &["split"], marks: &[Long(Runs, &["--filter"])] },
    Program { names: &["zip", "unzip", "7z", "ar"], marks: &[Short(Runs, &['T']), Long(Runs, &["--unzip-command"]), Short(Writes, &['d', 'o'])] },
    Program { names: &["diff", "cmp"], marks: &[Long(Writes, &["--output"]), Long(Loads, &["--from-file", "--to-file"])] },
    Program { names: &["gpg", "gpg2"], marks: &[Short(Writes, &['o']), Long(Runs, &["--exec-path", "--photo-viewer"]), Long(Loads, &["--options", "--homedir"]), Long(Writes, &["--output"])] },
];
