//! Permission rules: allow, ask or deny, by tool and by what a call would touch.
//!
//! # Writing rules
//!
//! Rules stand in the `[permissions]` table of the configuration. A tool has one mode, or a table of patterns:
//!
//! ```toml
//! [permissions]
//! edit = "ask"                  # the whole tool
//! outside = "ask"               # paths outside the workspace, for every tool
//!
//! [permissions.read]
//! "*" = "allow"                 # everything no other pattern covers
//! "**/.env*" = "deny"
//!
//! [permissions.bash]
//! "*" = "ask"
//! "git status" = "allow"        # these words exactly
//! "cargo test *" = "allow"      # and any further arguments
//! ```
//!
//! The modes are `allow`, `ask` and `deny`. Where nobody can be asked (a pipe, a job), *ask* refuses the call and the
//! result says which rule is missing. Without configuration `read`, `glob`, `grep` and `todo` are allowed inside the
//! workspace; `write`, `edit`, `bash`, every other tool and everything outside the workspace is asked for.
//! `--allow-all` lifts all rules.
//!
//! **Which rule wins.** Of the patterns that match, the most specific; where neither of two is, the stricter:
//! deny before ask before allow. A call that touches several things gets the strictest answer of them all.
//!
//! # Paths
//!
//! Patterns are globs (`*`, `?`, `[…]`, `{…}`; only `**` crosses folders) on the path below the workspace. Without a
//! slash they match a name at any depth; `./name` is the one at the top. A pattern that begins with `/` or `~/` is
//! matched against the absolute path, and is the only kind that matches outside the workspace. A whole path is more
//! specific than a glob, and a glob below a folder more than that folder's `/**`.
//!
//! The *real* path decides, with every link resolved; questions show both, and "always" remembers the real one. A
//! path that is denied as it is written stays denied, wherever it leads. `read` rules that deny a file also hide it
//! from `grep` and `glob`. Changing files under `.git` needs a rule that names them, because git runs what they say.
//!
//! # Commands
//!
//! `bash` patterns are the words of one plain command, quoted as in the shell. They must match all its words; a last
//! word `*` stands for any further arguments, and nothing else is a wildcard. The most words win, and a pattern
//! without a star over one with.
//!
//! A command text is parsed, and *every* simple command in it is judged by itself: each part of a pipeline, of
//! `&&`, `||`, `;`, `&` and line breaks, in subshells, groups, loops, branches and function bodies, in `$(…)`,
//! backquotes, process substitutions and here-documents. Redirections are judged as `read` and `write` of their
//! target. Quotes do not matter: `g"i"t status` is `git status`. What cannot be parsed, or is not what it seems
//! before it runs (a variable as the program's name, arithmetic on names, `${x@P}`), is asked for. Constructs that run no program
//! (`[[ … ]]`, `((…))`, `x=1`) count as commands of that name.
//!
//! A star does not cover arguments that make a program run another one, write where it is told or load
//! configuration: `find -delete`, `rg --pre`, `git -c`, `sort -o`, `tar --to-command` and so on. Name them in the
//! pattern (`"sort -o *"`). Programs whose arguments are a program (`sh`, `python`, `xargs`, `env`, `sudo`, `ssh`,
//! `eval`, …) need a pattern with the script file in it (`"python build.py *"`) or no star at all. Variables in
//! front of a command must be harmless (`RUST_LOG`, `NO_COLOR`) or part of the pattern (`"CC=clang make"`).
//!
//! `bash = "allow"` trusts the shell as a whole: none of these checks is made, and only `deny` rules of `read` and
//! `write` that name a file hold its redirections back. With stricter patterns beside it, whatever could hide a
//! command from them is asked for. Rules judge text; they are no sandbox.
//!
//! # Projects, memory
//!
//! A project's own file is a second layer: the stricter of both answers counts, so it can only narrow
//! ([`Rules::narrowed_by`]). "Always" remembers exact commands and real paths ([`Rules::remember`]); it lifts *ask*,
//! never *deny*. A session keeps its rules in its log, so a node that takes it over decides the same.

mod access;
mod config;
mod danger;
mod evaluate;
mod judge;
mod mode;
mod pattern;
mod place;
mod rules;
mod shell;
mod variables;
mod verdict;

pub use access::Access;
pub use config::PermissionConfig;
pub use evaluate::{evaluate, evaluate_at, hides};
pub use mode::Mode;
pub use pattern::PatternError;
pub use place::{Place, Resolver};
pub use rules::{Notice, Remembered, Rules};
pub use verdict::{Proposal, Question, Subject, Verdict, deny_headless};
