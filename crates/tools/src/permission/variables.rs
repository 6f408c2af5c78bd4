//! Which environment variables change what a command does.

/// Variables that may stand before an allowed command without a rule that names them.
const HARMLESS: &[&str] = &[
    "CI",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "COLUMNS",
    "DEBUG",
    "FORCE_COLOR",
    "LANG",
    "LANGUAGE",
    "LINES",
    "LOG_LEVEL",
    "NO_COLOR",
    "NODE_ENV",
    "RUST_BACKTRACE",
    "RUST_LIB_BACKTRACE",
    "RUST_LOG",
    "TERM",
    "TZ",
    "VERBOSE",
];

/// Exact names that decide which program runs, what it loads or how the shell splits words.
const SENSITIVE: &[&str] = &[
    "AR",
    "BROWSER",
    "CC",
    "CDPATH",
    "CFLAGS",
    "CPP",
    "CXX",
    "CXXFLAGS",
    "EDITOR",
    "ENV",
    "FCEDIT",
    "FIGNORE",
    "FPATH",
    "GLOBIGNORE",
    "HOME",
    "HOSTALIASES",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "LDFLAGS",
    "LOCPATH",
    "MAKEFLAGS",
    "MANPAGER",
    "NLSPATH",
    "OPTARG",
    "OPTIND",
    "PAGER",
    "PATH",
    "POSIXLY_CORRECT",
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "PS3",
    "PS4",
    "PWD",
    "OLDPWD",
    "REPLY",
    "SHELL",
    "SHELLOPTS",
    "TERMINFO",
    "TMPDIR",
    "USER",
    "VISUAL",
    "_JAVA_OPTIONS",
    "_",
];

/// Beginnings of such names.
const SENSITIVE_PREFIXES: &[&str] = &[
    "AWS_",
    "BASH",
    "BUN_",
    "CARGO",
    "CMAKE",
    "COMP_",
    "DENO_",
    "DOCKER_",
    "DYLD_",
    "FZF_",
    "GCC_",
    "GCONV_",
    "GIT_",
    "GO",
    "GRADLE_",
    "GREP_",
    "HIST",
    "JAVA_",
    "JDK_",
    "KUBE",
    "LC_ALL_",
    "LD_",
    "LESS",
    "LUA_",
    "MAKE",
    "MALLOC_",
    "MAVEN_",
    "NODE_",
    "NPM_",
    "OPENSSL_",
    "PERL",
    "PHP",
    "PIP_",
    "PKG_CONFIG",
    "PYTEST",
    "PYTHON",
    "READLINE",
    "RIPGREP_",
    "RUBY",
    "RUST",
    "SSH_",
    "SSL_",
    "SUDO_",
    "UV_",
    "WGET",
    "XDG_",
    "YARN_",
    "ZDOTDIR",
    "npm_",
];

/// True when setting the variable can change which program runs later or how it behaves.
pub(crate) fn is_sensitive(name: &str) -> bool {
    let listed = SENSITIVE.contains(&name)
        || SENSITIVE_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
        || name.ends_with("PAGER")
        || name.ends_with("_OPTIONS")
        || name.ends_with("_OPTS")
        || name.to_ascii_lowercase().ends_with("_proxy");
    listed && !is_harmless(name)
}

/// True when the variable may be set in front of any command that is itself allowed.
pub(crate) fn is_harmless(name: &str) -> bool {
    HARMLESS.contains(&name) || name.starts_with("LC_")
}
