//! Package names for the requirements of the tests.

/// A package manager: the program, its install command, and its packages in the order of
/// `Requirement::ALL`.
pub(super) struct Manager {
    pub(super) program: &'static str,
    pub(super) install: &'static str,
    pub(super) packages: [&'static str; 18],
}

/// The first one found is used. `test` runs apt-get itself; for the others it prints the line for
/// the user.
pub(super) const MANAGERS: [Manager; 5] = [
    Manager {
        program: "apt-get",
        install: "apt-get install --no-install-recommends",
        // Without recommended packages gcc comes without the C library's headers.
        packages: [
            "gcc libc6-dev",
            "curl",
            "openssl",
            "nginx-light",
            "python3 python3-venv",
            "postgresql",
            "nodejs npm",
            "chromium-headless-shell",
            // A bus without the user session of systemd, which gnome-keyring would install.
            "gnome-keyring dbus-x11",
            "coturn",
            "nghttp2-client nghttp2-server",
            "slowhttptest",
            "systemd",
            "prometheus",
            "asciinema",
            "zsh fish",
            "openssh-client",
            "tinyproxy-bin microsocks libnss-wrapper",
        ],
    },
    Manager {
        program: "dnf",
        install: "dnf install",
        packages: [
            "gcc",
            "curl",
            "openssl",
            "nginx",
            "python3",
            "postgresql-server",
            "nodejs npm",
            "chromium",
            "gnome-keyring dbus-daemon",
            "coturn-utils",
            "nghttp2",
            "slowhttptest",
            "systemd",
            "golang-github-prometheus",
            "asciinema",
            "zsh fish",
            "openssh",
            "tinyproxy microsocks nss_wrapper",
        ],
    },
    Manager {
        program: "pacman",
        install: "pacman -S --needed",
        packages: [
            "gcc",
            "curl",
            "openssl",
            "nginx",
            "python",
            "postgresql",
            "nodejs npm",
            "chromium",
            "gnome-keyring dbus",
            "coturn",
            "nghttp2",
            "slowhttptest",
            "systemd",
            "prometheus",
            "asciinema",
            "zsh fish",
            "openssh",
            "tinyproxy microsocks nss_wrapper",
        ],
    },
    Manager {
        program: "apk",
        install: "apk add",
        packages: [
            "gcc musl-dev",
            "curl",
            "openssl",
            "nginx",
            "python3",
            "postgresql",
            "nodejs npm",
            "chromium",
            "gnome-keyring dbus",
            "coturn",
            "nghttp2",
            "slowhttptest",
            // Always present there, as below.
            "",
            "prometheus",
            "asciinema",
            "zsh fish",
            "openssh-keygen",
            "tinyproxy microsocks nss_wrapper",
        ],
    },
    Manager {
        program: "brew",
        install: "brew install",
        packages: [
            "gcc",
            "curl",
            "openssl",
            "nginx",
            "python",
            "postgresql",
            "node",
            "chromium",
            // Always present there.
            "",
            "coturn",
            "nghttp2",
            "slowhttptest",
            // Always present there.
            "",
            "prometheus",
            "asciinema",
            "zsh fish",
            // Part of macOS.
            "",
            // The tests that need them are for Linux.
            "",
        ],
    },
];
