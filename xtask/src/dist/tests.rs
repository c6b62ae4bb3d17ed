//! Packages of the program that the tests run, installed below a directory by the real `dpkg`.

mod image;

use super::*;
use crate::tidy::links;

/// A missing requirement fails the test instead of skipping it.
fn needed(name: &str) -> PathBuf {
    program::find(name).unwrap_or_else(|| panic!("{name} is not here: `cargo xtask provision`"))
}

fn svc() -> PathBuf {
    let svc = env::var_os("SVC_BIN").expect("SVC_BIN is not set: run `cargo xtask test`");
    svc.into()
}

/// A new directory of this test. It is kept for inspection.
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

/// Packs the program without the slow parts: debug information and compression.
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
    let packages = packed_program(&out, flavour, &program);
    (out, packages)
}

/// Packs a script with the same output as the program, for tests that do not depend on the program.
fn packed_script(out: &Path, flavour: Flavour) -> Vec<String> {
    let program = out.join("svc.program");
    fs::write(&program, SCRIPT).unwrap();
    program::run(Command::new("chmod").arg("755").arg(&program)).unwrap();
    packed_program(out, flavour, &program)
}

fn packed_program(out: &Path, flavour: Flavour, program: &Path) -> Vec<String> {
    let repository = Repository::of_this_package().unwrap();
    let packing = PackageInputs {
        repository: &repository,
        out,
        effort: CompressionLevel::Quick,
        inventory: &Inventory::gather(&repository, flavour).unwrap(),
        allowed: AllowedLicences::read(&repository).unwrap(),
    };
    let packages = packing.pack(flavour, program).unwrap();
    checksums(out, &packages).unwrap();
    packages
}

const SCRIPT: &str = r#"#!/bin/sh
case "$*" in
--version) echo svc 1.2.3-rc.1 ;;
"man --dir "*) mkdir -p "$3" && echo .TH svc 1 >"$3/svc.1" ;;
completions*) echo complete ;;
esac
"#;

/// The files of a Debian package, unpacked.
fn unpacked(out: &Path, deb: &str) -> PathBuf {
    let folder = out.join("unpacked");
    let mut unpack = Command::new(needed("dpkg-deb"));
    program::run(unpack.arg("--extract").arg(out.join(deb)).arg(&folder)).unwrap();
    folder
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

    /// Only root may change the owner of files; other users run in a namespace in which they are
    /// root.
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
        // The package must not write outside of the directory.
        command.arg("--root").arg(&self.0).args(args);
        program::output(&mut command).unwrap()
    }

    fn install(&self, deb: &Path) {
        let deb = deb.to_str().unwrap();
        // Its dependencies are not in this root, and there is no shell for its scripts.
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
fn the_package_installs_keeps_configurations_and_uninstalls() {
    let (out, packages) = packed("whole", Flavour::Complete);
    let deb = deb(&packages);
    let root = Root::new(directory("root"));
    root.install(&out.join(deb));

    let output = program::output(Command::new(root.path("usr/bin/svc")).arg("--version")).unwrap();
    assert!(output.starts_with("svc "), "{output}");
    for file in [
        "etc/logrotate.d/svc",
        "usr/share/doc/svc/examples/engine.yaml",
        "usr/share/doc/svc/examples/platform.yaml",
        "usr/share/doc/svc/examples/turn.yaml",
        "usr/share/man/man1/svc.1.gz",
        "usr/lib/systemd/system/svc-engine.service",
        "usr/lib/systemd/system/svc-platform.service",
        "usr/lib/systemd/system/svc-turn.service",
        "usr/lib/systemd/system/svc-up.service",
        "usr/lib/sysusers.d/svc.conf",
        "usr/share/doc/svc/docs/configuration.md",
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
    let listing = root.dpkg("dpkg-query", &show);
    assert!(listing.starts_with("ii "), "{listing}");
    assert!(listing.contains(" /etc/logrotate.d/svc "), "{listing}");
    let written = fs::read_dir(root.path("etc/svc")).unwrap().count();
    assert_eq!(
        written, 0,
        "a configuration is there when somebody wrote it"
    );
    assert_eq!(
        root.dpkg("dpkg", &["--verify", "svc"]),
        "",
        "as it was packed"
    );

    the_tarball_is_one_folder_and_its_sum_is_right(&out, &packages);

    // Files of an administrator survive an upgrade and a removal, and secrets are deleted by a
    // purge. TLS keys and data of the services do not belong to the package.
    let written = [
        "etc/svc/engine.yaml",
        "etc/svc/engine.env",
        "etc/svc/engine.secret",
        "etc/svc/enrolment-token",
    ];
    let left = [
        "etc/svc/tls/privkey.pem",
        "var/lib/svc/platform/platform.db",
    ];
    for file in written.iter().chain(&left) {
        fs::create_dir_all(root.path(file).parent().unwrap()).unwrap();
        fs::write(root.path(file), "mine\n").unwrap();
    }
    let are_there = |files: &[&str]| {
        let mut files = files.iter().map(|file| root.path(file));
        files.all(|file| fs::read_to_string(file).is_ok_and(|text| text == "mine\n"))
    };
    root.install(&out.join(deb));
    assert!(are_there(&written) && are_there(&left));
    root.dpkg("dpkg", &["--force-script-chrootless", "--remove", "svc"]);
    assert!(are_there(&written) && are_there(&left) && !root.path("usr/bin/svc").exists());
    root.dpkg("dpkg", &["--force-script-chrootless", "--purge", "svc"]);
    assert!(are_there(&left));
    for file in written {
        assert!(!root.path(file).exists(), "{file}");
    }
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
    let listing = program::output(list).unwrap();
    let version = version(&svc()).unwrap();
    for file in [
        "svc",
        "README.md",
        "LICENSE",
        "systemd/svc-engine.service",
        "etc/engine.yaml",
    ] {
        let path = format!("svc-{version}/{file}");
        assert!(
            listing.lines().any(|line| line == path),
            "{path}: {listing}"
        );
    }
}

#[test]
fn the_agent_package_has_no_servers() {
    let (out, packages) = packed("agent", Flavour::Agent);
    let deb = deb(&packages);
    let list = |archive| {
        let mut command = Command::new(needed("dpkg-deb"));
        program::output(command.arg(archive).arg(out.join(deb))).unwrap()
    };
    let listing = list("--contents");
    assert!(listing.contains("./usr/bin/svc\n"), "{listing}");
    // Documentation also mentions servers.
    let installed = |line: &&str| !line.contains("./usr/share/doc/");
    let installed = listing
        .lines()
        .filter(installed)
        .collect::<Vec<_>>()
        .join("\n");
    for server in ["/etc/", "systemd", "sysusers"] {
        assert!(!installed.contains(server), "{installed}");
    }
    let fields = list("--field");
    assert!(
        fields.contains("Package: svc-agent\n") && fields.contains("Conflicts: svc, daemontools\n"),
        "{fields}"
    );
    assert!(fields.contains("libc6 (>= 2."), "{fields}");
}

/// Both programs are built and packed with the permissions that the umask allows.
#[test]
fn the_umask_does_not_change_the_packages() {
    const OUT: &str = "SVC_XTASK_PACK_INTO";
    if let Some(out) = env::var_os(OUT) {
        packed_script(Path::new(&out), Flavour::Complete);
        return;
    }
    let mut sums = Vec::new();
    for umask in ["002", "022", "077"] {
        let out = directory(&format!("umask-{umask}"));
        let mut shell = Command::new("sh");
        let script = format!("umask {umask} && exec \"$0\" \"$@\"");
        shell
            .args(["-c", &script])
            .arg(env::current_exe().unwrap())
            .args([
                "--exact",
                "dist::tests::the_umask_does_not_change_the_packages",
            ])
            .env(OUT, &out);
        program::output(&mut shell).unwrap();
        sums.push(fs::read_to_string(out.join(signature::SUMS)).unwrap());
    }
    assert_eq!(sums[0].lines().count(), 3, "{}", sums[0]);
    assert!(sums.iter().all(|one| *one == sums[0]), "{sums:#?}");
}

/// Debian's policy, and readers: a package has its copyright and its changes, and the links in its
/// pages work.
#[test]
fn pages_of_the_package_are_complete() {
    let out = directory("pages");
    let packages = packed_script(&out, Flavour::Complete);
    assert_eq!(deb(&packages).split('_').nth(1), Some("1.2.3~rc.1-1"));
    let root = unpacked(&out, deb(&packages));
    let documents = root.join("usr/share/doc/svc");
    for file in [
        "copyright",
        "changelog.gz",
        "changelog.Debian.gz",
        "THIRD-PARTY-LICENSES.gz",
        "sbom.cdx.json.gz",
        "docs/upgrading.md",
    ] {
        assert!(documents.join(file).is_file(), "{file}");
    }
    let mut pages = 0;
    for file in stage::files(&documents, "none").unwrap() {
        let name = file.to_str().unwrap();
        if !documents::is_page(name) {
            continue;
        }
        pages += 1;
        let text = fs::read_to_string(documents.join(&file)).unwrap();
        for target in links::targets(&text) {
            let target = documents.join(links::resolve(name, target));
            assert!(target.exists(), "{name} leads to {}", target.display());
        }
    }
    assert!(pages > 20, "{pages}");
    // Files named in examples and units exist.
    for folder in [
        documents.join("examples"),
        root.join("usr/lib/systemd/system"),
    ] {
        for file in stage::files(&folder, "none").unwrap() {
            let text = fs::read_to_string(folder.join(file)).unwrap();
            for named in text
                .split_whitespace()
                .filter(|word| word.starts_with("/usr/share/"))
            {
                let named = named.trim_matches('/').trim_end_matches('.');
                assert!(root.join(named).exists(), "{named}");
            }
        }
    }
}

/// Every stanza has the fields that Debian's format requires, and every named licence has its text.
#[test]
fn copyright_names_every_component() {
    let repository = Repository::of_this_package().unwrap();
    let inventory = Inventory::gather(&repository, Flavour::Complete).unwrap();
    let allowed = AllowedLicences::read(&repository).unwrap();
    let file = copyright::debian(&inventory, &allowed, "svc").unwrap();
    let (mut named, mut explained) = (Vec::new(), Vec::new());
    let mut count = 0;
    for stanza in file.split("\n\n").skip(1) {
        let licence = stanza
            .lines()
            .find_map(|line| line.strip_prefix("License: "));
        let licence = licence.unwrap();
        if stanza.starts_with("Files: ") {
            count += 1;
            let (_, holders) = stanza.split_once("\nCopyright: ").unwrap();
            assert!(!holders.starts_with('\n'), "{stanza}");
            named.extend(licence.split(" or ").flat_map(|part| part.split(" and ")));
        } else {
            assert!(stanza.lines().count() > 1, "{stanza}");
            explained.push(licence);
        }
    }
    assert_eq!(count, inventory.others.len() + 1);
    for licence in named {
        assert!(explained.contains(&licence), "{licence}");
    }
    let page = copyright::third_party(&inventory).unwrap();
    for component in &inventory.others {
        assert!(!component.notices.is_empty(), "{}", component.name);
        let line = format!("\n{} {}: ", component.name, component.version);
        assert!(page.contains(&line), "{line}");
    }
}

/// systemd accepts every unit without a warning, and rates its exposure low.
#[test]
fn systemd_accepts_the_units() {
    let repository = Repository::of_this_package().unwrap();
    let units = directory("units");
    let analyze = needed("systemd-analyze");
    for entry in fs::read_dir(repository.root().join("deploy/systemd")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let unit = fs::read_to_string(&path).unwrap();
        assert!(unit.contains("ExecStart=/usr/bin/svc "), "{name}");
        // systemd looks for the program, which is not installed here.
        let unit = unit.replace("/usr/bin/svc", svc().to_str().unwrap());
        let copy = units.join(name);
        fs::write(&copy, unit).unwrap();
        let verified = Command::new(&analyze)
            .args(["verify", "--man=no"])
            .arg(&copy)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&verified.stderr);
        let about: Vec<_> = stderr
            .lines()
            .filter(|line| line.contains("svc-"))
            .collect();
        assert!(
            verified.status.success() && about.is_empty(),
            "{name}: {stderr}"
        );
        if !SERVERS_ONLY.contains(&name) {
            continue;
        }
        // In tenths: a rating that systemd calls OK is below 5.
        let security = ["security", "--offline=true", "--no-pager", "--threshold=20"];
        program::output(Command::new(&analyze).args(security).arg(&copy)).unwrap();
    }
}

/// The units in this folder that are exposed to untrusted clients; an agent's may need more.
const SERVERS_ONLY: [&str; 4] = [
    "svc-engine.service",
    "svc-platform.service",
    "svc-turn.service",
    "svc-up.service",
];

/// Units start once an administrator has written a configuration; no package contains one.
#[test]
fn units_wait_for_a_configuration() {
    let repository = Repository::of_this_package().unwrap();
    let out = directory("conditions");
    let packages = packed_script(&out, Flavour::Complete);
    let root = unpacked(&out, deb(&packages));
    for name in ["engine", "platform", "turn"] {
        let unit = repository.read(&format!("deploy/systemd/svc-{name}.service"));
        let unit = unit.unwrap();
        let file = format!("/etc/svc/{name}.yaml");
        assert!(unit.contains(&format!("ExecStart=/usr/bin/svc {name} -c {file}\n")));
        assert!(unit.contains(&format!("ConditionPathExists={file}\n")));
        assert!(!root.join(file.trim_start_matches('/')).exists(), "{file}");
    }
    // The server of one command has its host and the consent to the terms of service there.
    let unit = repository.read("deploy/systemd/svc-up.service").unwrap();
    assert!(unit.contains("ConditionPathExists=/etc/svc/up.env\n"));
    assert!(unit.contains("EnvironmentFile=/etc/svc/up.env\n"));
    assert!(!root.join("etc/svc/up.env").exists());
}

/// The rotated file is that of the example, and the reload command makes the unit reopen it.
#[test]
fn the_access_log_is_rotated() {
    let repository = Repository::of_this_package().unwrap();
    let read = |path: &str| repository.read(path).unwrap();
    let rotation = read("deploy/debian/svc.logrotate");
    assert!(rotation.contains("\n/var/log/svc/*.log {\n"));
    assert!(rotation.contains("systemctl kill --signal=HUP svc-engine.service\n"));
    assert!(!rotation.contains("copytruncate"));
    assert!(read("deploy/etc/engine.yaml").contains("path: /var/log/svc/access.log\n"));
    let unit = read("deploy/systemd/svc-engine.service");
    assert!(unit.contains("ExecReload=/bin/kill -USR2 $MAINPID\n"));
    assert!(unit.contains("LogsDirectory=svc\n"));
}

/// An administrator who writes a unit needs the lines of the shipped one.
#[test]
fn the_page_about_restarts_has_lines_of_the_unit() {
    let repository = Repository::of_this_package().unwrap();
    let unit = repository
        .read("deploy/systemd/svc-engine.service")
        .unwrap();
    let page = repository.read("docs/restarts.md").unwrap();
    let (_, example) = page
        .split_once("A unit of your own needs:\n\n```ini\n")
        .unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let settings: Vec<_> = example.lines().filter(|line| line.contains('=')).collect();
    assert!(settings.iter().any(|line| line.starts_with("ExecStop=")));
    for line in settings {
        assert!(unit.contains(&format!("{line}\n")), "{line}");
    }
}

/// Shells can parse the scripts of the package, and an upgrade restarts every service.
#[test]
fn scripts_of_the_package_can_be_parsed() {
    let repository = Repository::of_this_package().unwrap();
    for script in ["postinst", "prerm", "postrm"] {
        let path = repository.path(&format!("deploy/debian/{script}"));
        program::run(Command::new("sh").arg("-n").arg(path)).unwrap();
    }
    let postinst = repository.read("deploy/debian/postinst").unwrap();
    assert!(postinst.contains("try-restart"));
    for name in ["engine", "platform", "turn", "up"] {
        assert!(postinst.contains(&format!("svc-{name}")), "{name}");
    }
}
