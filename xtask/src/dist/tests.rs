//! Packages of the program that the tests run, installed below a directory by the real `dpkg`.

use std::env;

use super::*;

/// What the tests need is never skipped: it is missing loudly.
fn needed(name: &str) -> PathBuf {
    program::find(name).unwrap_or_else(|| panic!("{name} is not here: `cargo xtask provision`"))
}

fn svc() -> PathBuf {
    let svc = env::var_os("SVC_BIN").expect("SVC_BIN is not set: run `cargo xtask test`");
    svc.into()
}

/// A directory of this test, made anew. It is left for people to look at.
fn directory(name: &str) -> PathBuf {
    let repository = Repository::of_this_package().unwrap();
    let directory = repository
        .target_directory()
        .unwrap()
        .join("dist-tests")
        .join(name);
    remove(&directory).unwrap();
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Packs the program without what takes long: its debugging information, and compression.
fn packed(name: &str, flavour: Flavour) -> (PathBuf, Vec<String>) {
    let out = directory(name);
    let program = out.join("svc.program");
    program::run(
        Command::new(needed("strip"))
            .arg("-o")
            .arg(&program)
            .arg(svc()),
    )
    .unwrap();
    let packing = Packing {
        repository: &Repository::of_this_package().unwrap(),
        out: &out,
        effort: Effort::Quick,
    };
    let packages = packing.pack(flavour, &program).unwrap();
    checksums(&out, &packages).unwrap();
    (out, packages)
}

fn deb(packages: &[String]) -> &str {
    let is_deb = |name: &&String| Path::new(name).extension().is_some_and(|end| end == "deb");
    packages.iter().find(is_deb).unwrap()
}

/// A root directory with an empty database of packages.
struct Root(PathBuf);

impl Root {
    fn new(path: PathBuf) -> Self {
        for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"] {
            fs::create_dir_all(path.join(folder)).unwrap();
        }
        for file in ["status", "available"] {
            fs::write(path.join("var/lib/dpkg").join(file), "").unwrap();
        }
        fs::write(path.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
        fs::write(path.join("etc/group"), "root:x:0:\n").unwrap();
        Self(path)
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.join(below)
    }

    /// Only root may give files away, so everybody else is root in a namespace of their own.
    fn dpkg(&self, program: &str, args: &[&str]) -> String {
        let is_root = program::output(Command::new("id").arg("-u"))
            .unwrap()
            .trim()
            == "0";
        let mut command = if is_root {
            Command::new(needed(program))
        } else {
            let mut command = Command::new(needed("unshare"));
            command.arg("--map-root-user").arg(needed(program));
            command
        };
        // Nothing of the package may reach out of the directory.
        command.arg("--root").arg(&self.0).args(args);
        program::output(&mut command).unwrap()
    }

    fn install(&self, deb: &Path) {
        let deb = deb.to_str().unwrap();
        // What it depends on is not in this root, and there is no shell to run its scripts in.
        let force = [
            "--force-depends",
            "--force-script-chrootless",
            "--install",
            deb,
        ];
        self.dpkg("dpkg", &force);
    }
}

#[test]
fn the_package_installs_keeps_its_configurations_and_goes() {
    let (out, packages) = packed("whole", Flavour::Whole);
    let deb = deb(&packages);
    let root = Root::new(directory("root"));
    root.install(&out.join(deb));

    let said = program::output(Command::new(root.path("usr/bin/svc")).arg("--version")).unwrap();
    assert!(said.starts_with("svc "), "{said}");
    for file in [
        "etc/svc/engine.yaml",
        "etc/svc/platform.yaml",
        "etc/svc/turn.yaml",
        "usr/lib/systemd/system/svc-engine.service",
        "usr/lib/systemd/system/svc-platform.service",
        "usr/lib/systemd/system/svc-turn.service",
        "usr/lib/sysusers.d/svc.conf",
        "usr/share/doc/svc/configuration.md",
        "usr/share/doc/svc/LICENSE",
    ] {
        assert!(root.path(file).is_file(), "{file}");
    }
    let passwd = fs::read_to_string(root.path("etc/passwd")).unwrap();
    assert!(
        passwd.contains("\nsvc:"),
        "its script makes the user: {passwd}"
    );
    let show = [
        "--show",
        "--showformat",
        "${db:Status-Abbrev} ${Conffiles}",
        "svc",
    ];
    let known = root.dpkg("dpkg-query", &show);
    assert!(known.starts_with("ii "), "{known}");
    for name in ["engine", "platform", "turn"] {
        assert!(
            known.contains(&format!(" /etc/svc/{name}.yaml ")),
            "{known}"
        );
    }
    assert_eq!(
        root.dpkg("dpkg", &["--verify", "svc"]),
        "",
        "as it was packed"
    );

    the_tarball_is_one_folder_and_its_sum_is_right(&out, &packages);

    // What an administrator has written stays through an upgrade and a removal.
    let engine = root.path("etc/svc/engine.yaml");
    fs::write(&engine, "engine: {host: mine.example.com}\n").unwrap();
    root.install(&out.join(deb));
    assert!(
        fs::read_to_string(&engine)
            .unwrap()
            .contains("mine.example.com")
    );
    root.dpkg("dpkg", &["--force-script-chrootless", "--remove", "svc"]);
    assert!(engine.is_file() && !root.path("usr/bin/svc").exists());
    root.dpkg("dpkg", &["--force-script-chrootless", "--purge", "svc"]);
    assert!(!engine.exists());
}

fn the_tarball_is_one_folder_and_its_sum_is_right(out: &Path, packages: &[String]) {
    let mut check = Command::new("sha256sum");
    program::run(
        check
            .current_dir(out)
            .args(["--check", "--strict", "--quiet", "SHA256SUMS"]),
    )
    .unwrap();
    let tarball = packages
        .iter()
        .find(|name| name.ends_with(".tar.gz"))
        .unwrap();
    let mut list = Command::new("tar");
    let list = list.args(["--list", "--file"]).arg(out.join(tarball));
    let held = program::output(list).unwrap();
    let version = version(&svc()).unwrap();
    for file in [
        "svc",
        "README.md",
        "LICENSE",
        "systemd/svc-engine.service",
        "etc/engine.yaml",
    ] {
        let path = format!("svc-{version}/{file}");
        assert!(held.lines().any(|line| line == path), "{path}: {held}");
    }
}

#[test]
fn an_agent_comes_without_servers() {
    let (out, packages) = packed("agent", Flavour::Agent);
    let deb = deb(&packages);
    let list = |archive| {
        let mut command = Command::new(needed("dpkg-deb"));
        program::output(command.arg(archive).arg(out.join(deb))).unwrap()
    };
    let held = list("--contents");
    assert!(held.contains("./usr/bin/svc\n"), "{held}");
    for server in ["engine.yaml", "svc-engine.service", "sysusers"] {
        assert!(!held.contains(server), "{held}");
    }
    let told = list("--field");
    assert!(
        told.contains("Package: svc-agent\n") && told.contains("Conflicts: svc\n"),
        "{told}"
    );
    assert!(told.contains("libc6 (>= 2."), "{told}");
}

/// systemd reads every unit without a word, and finds little that an attacker could use.
#[test]
fn systemd_takes_the_units() {
    let repository = Repository::of_this_package().unwrap();
    let units = directory("units");
    let analyze = needed("systemd-analyze");
    for entry in fs::read_dir(repository.root().join("deploy/systemd")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let unit = fs::read_to_string(&path).unwrap();
        assert!(unit.contains("ExecStart=/usr/bin/svc "), "{name}");
        // The program is looked for, and is not installed here.
        let unit = unit.replace("/usr/bin/svc", svc().to_str().unwrap());
        let copy = units.join(name);
        fs::write(&copy, unit).unwrap();
        let verified = Command::new(&analyze)
            .args(["verify", "--man=no"])
            .arg(&copy)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&verified.stderr);
        let about: Vec<_> = said.lines().filter(|line| line.contains("svc-")).collect();
        assert!(
            verified.status.success() && about.is_empty(),
            "{name}: {said}"
        );
        if !SERVERS_ONLY.contains(&name) {
            continue;
        }
        // In tenths of ten: what systemd calls OK is below 5.
        let security = ["security", "--offline=true", "--no-pager", "--threshold=20"];
        program::output(Command::new(&analyze).args(security).arg(&copy)).unwrap();
    }
}

/// The units of this folder that run beside strangers; an agent's may need more.
const SERVERS_ONLY: [&str; 3] = [
    "svc-engine.service",
    "svc-platform.service",
    "svc-turn.service",
];

/// Units start what is installed, with the configurations that are installed.
#[test]
fn units_and_configurations_fit() {
    let repository = Repository::of_this_package().unwrap();
    let read = |path: &str| fs::read_to_string(repository.root().join(path)).unwrap();
    let conffiles = read("deploy/debian/conffiles");
    for name in ["engine", "platform", "turn"] {
        let unit = read(&format!("deploy/systemd/svc-{name}.service"));
        let file = format!("/etc/svc/{name}.yaml");
        assert!(unit.contains(&format!("ExecStart=/usr/bin/svc {name} -c {file}\n")));
        assert!(unit.contains(&format!("ConditionPathExists={file}\n")));
        assert!(conffiles.lines().any(|line| line == file));
    }
    assert_eq!(conffiles.lines().count(), 3);
}
