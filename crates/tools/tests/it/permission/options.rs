//! Arguments that a star does not cover.

use super::*;

#[test]
fn marked_options_of_known_programs_are_asked_for() {
    for (pattern, commands) in [
        (
            "git *",
            &[
                "git -c a=b log",
                "git -ca=b log",
                "git --config-env=a=b log",
                "git --exec-path=. log",
                "git -C x log",
                "git --git-dir=x log",
                "git log --output=x",
                "git log --output x",
                "git log --outp=x",
                "git diff --ext-diff",
                "git clone --upload-pack=x y",
                "git clone -u x y",
                "git fetch --upload-pack x",
                "git config a b",
                "git submodule update",
                "git bisect run x",
                "git rebase -x y",
                "git rebase --exec y",
                "git grep -Ovim a",
                "git grep --open-files-in-pager=x a",
                "git archive -o x HEAD",
                "git format-patch -o x",
                "git difftool",
                "git foo",
                "git clone ext::sh",
                "git $X log",
                "git log $X",
                "git \"$X\"",
                "git -p log",
                "git filter-branch",
            ][..],
        ),
        (
            "rg *",
            &[
                "rg --pre x a",
                "rg --pre=x a",
                "rg --hostname-bin x",
                "rg -z a",
                "rg --search-zip a",
            ],
        ),
        (
            "fd *",
            &[
                "fd -x a",
                "fd -X a",
                "fd --exec a",
                "fd --exec-batch a",
                "fd --exec=a",
                "fd -Hx a",
            ],
        ),
        (
            "find *",
            &[
                "find . -exec a {} +",
                "find . -execdir a ;",
                "find . -ok a ;",
                "find . -okdir a ;",
                "find . -delete",
                "find . -fprint a",
                "find . -fprintf a b",
                "find . -fls a",
                "find -- . -delete",
                "find . $X",
            ],
        ),
        (
            "go test *",
            &[
                "go test -exec x",
                "go test --exec=x",
                "go test -toolexec x",
                "go test -o x",
                "go test -overlay x",
            ],
        ),
        (
            "go *",
            &["go run .", "go generate", "go install x", "go env -w A=b"],
        ),
        (
            "sort *",
            &[
                "sort -o f f",
                "sort -uo f f",
                "sort --output=f f",
                "sort --compress-program=x f",
                "sort *",
            ],
        ),
        (
            "tar *",
            &[
                "tar --to-command=x -xf a",
                "tar --checkpoint-action=exec=x -cf a b",
                "tar -I x -xf a",
                "tar -xIf x a",
                "tar xIf x a",
                "tar --use-compress-program=x -xf a",
                "tar --to-c=x -xf a",
                "tar -C / -xf a",
                "tar -cf a *",
            ],
        ),
        (
            "sed *",
            &[
                "sed -i s/a/b/ f",
                "sed -ni p f",
                "sed --in-place s/a/b/ f",
                "sed 'w x' f",
                "sed s/a/b/w f",
                "sed s/a/b/e f",
                "sed 1e f",
                "sed '1!G;h;$!d;w x' f",
                "sed -f x f",
                "sed -e 's/a/b/w x' f",
                "sed -es/a/b/e f",
                "sed 's/a/b/;e' f",
            ],
        ),
        (
            "awk *",
            &[
                "awk 'BEGIN{system(\"x\")}'",
                "awk '{print > \"x\"}' f",
                "awk '{print | \"x\"}' f",
                "awk -f x f",
                "awk '{\"x\" | getline}'",
                "gawk x",
                "awk '@load \"x\"'",
            ],
        ),
        (
            "curl *",
            &[
                "curl -o x y",
                "curl -O y",
                "curl -sSLo x y",
                "curl -K x",
                "curl --output x y",
                "curl --config x",
                "curl --remote-name y",
                "curl -d @x y",
                "curl -T x y",
                "curl file:///etc/passwd",
            ],
        ),
        (
            "wget *",
            &[
                "wget -O x y",
                "wget --output-document=x y",
                "wget -P x y",
                "wget -e a=b y",
                "wget --use-askpass=x y",
            ],
        ),
        (
            "make *",
            &[
                "make -f x",
                "make --eval=x",
                "make SHELL=x",
                "make -C x",
                "make -E x",
            ],
        ),
        (
            "cargo *",
            &[
                "cargo --config x build",
                "cargo build --config x",
                "cargo install x",
                "cargo publish",
                "cargo -Z x build",
                "cargo evil",
                "cargo build --manifest-path x",
                "cargo +evil build",
            ],
        ),
        (
            "npm *",
            &["npm run x", "npm install x", "npm exec x", "npm test"],
        ),
        ("pip *", &["pip install x"]),
        (
            "python *",
            &["python x.py", "python -c x", "python", "python -m x"],
        ),
        ("bash *", &["bash x.sh", "bash -c x", "bash"]),
        ("ssh *", &["ssh host", "ssh -o ProxyCommand=x host"]),
        ("env *", &["env", "env -S x", "env X=1 y"]),
        ("xargs *", &["xargs", "xargs rm"]),
        ("printf *", &["printf -v PATH x"]),
        ("test *", &["test -v 'a[$(x)]'"]),
        (
            "export *",
            &["export PATH=x", "export LD_PRELOAD=x", "export $X"],
        ),
        ("read *", &["read PATH", "read 'a[$(x)]'"]),
        (
            "gcc *",
            &["gcc -wrapper x a.c", "gcc -o x a.c", "gcc -fplugin=x a.c"],
        ),
        ("rsync *", &["rsync -e x a b", "rsync --rsh=x a b"]),
    ] {
        assert_asked(&allowing(&[pattern]), commands);
    }
}

#[test]
fn ordinary_arguments_stay_covered() {
    for (pattern, commands) in [
        (
            "git *",
            &[
                "git status",
                "git diff HEAD~1 -- src",
                "git commit -m 'fix: a; b'",
                "git log --format='%h %s'",
                "git push --force-with-lease",
                "git stash pop",
                "git show HEAD:a",
                "git add \"./$f\"",
            ][..],
        ),
        (
            "sed *",
            &[
                "sed -n 1,20p f.txt",
                "sed -n '1,20p' src/a.rs",
                "sed 's/a/b/g' f.txt",
                "sed -e s,a,b, f.txt",
                "sed '$d' f.txt",
            ],
        ),
        (
            "awk *",
            &[
                "awk '{print $1}' f",
                "awk -F: '{ n += $2 } END { print n }' f",
            ],
        ),
        (
            "cargo *",
            &[
                "cargo test --workspace -- --nocapture",
                "cargo build --release",
                "cargo clippy -- -D warnings",
                "cargo fmt --check",
            ],
        ),
        (
            "python build.py *",
            &["python build.py", "python build.py --all x"],
        ),
        (
            "npm run build *",
            &["npm run build", "npm run build -- --watch"],
        ),
        ("make *", &["make", "make test", "make -j4 all"]),
        (
            "find *",
            &[
                "find . -name 'a*' -not -path './x/*' -print",
                "find src -type f -mtime -1",
            ],
        ),
        (
            "curl *",
            &[
                "curl -sSfL https://example.org",
                "curl --silent https://example.org",
            ],
        ),
        ("wc *", &["wc -l *.rs", "wc -l \"$f\"", "wc $X"]),
        ("export *", &["export FOO=bar", "export RUST_LOG=debug"]),
    ] {
        assert_allowed(&allowing(&[pattern]), commands);
    }
}

#[test]
fn exact_rules_cover_marked_options() {
    for command in [
        "find . -delete",
        "git config user.name x",
        "python build.py",
        "bash x.sh",
        "npm test",
        "env",
        "sed -i s/a/b/ f",
        "tar -xf a -C out",
    ] {
        assert_allowed(&allowing(&[command]), &[command]);
    }
}
