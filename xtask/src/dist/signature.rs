//! Signatures of a release: `SHA256SUMS.sig`, created by `ssh-keygen`, which is widely available.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::program;
use crate::repository::Repository;

/// The signing key: an OpenSSH private key, or the public key of one in an agent.
pub(super) struct SigningKey(PathBuf);

impl SigningKey {
    /// The key from the option, or from the environment. Keys in the repository are refused.
    pub(super) fn find(repository: &Repository, option: Option<PathBuf>) -> Result<Option<Self>> {
        let path = option.or_else(|| env::var_os(VARIABLE).map(PathBuf::from));
        path.map(|path| Self::at(repository.root(), &path))
            .transpose()
    }

    fn at(root: &Path, path: &Path) -> Result<Self> {
        let real = fs::canonicalize(path)
            .with_context(|| format!("cannot find the key {}", path.display()))?;
        ensure!(
            !real.starts_with(fs::canonicalize(root)?),
            "{} is in the repository: keys are kept elsewhere",
            path.display()
        );
        Ok(Self(real))
    }

    /// Signs `SHA256SUMS` of the folder, and verifies the signature.
    pub(super) fn sign(&self, out: &Path) -> Result<()> {
        remove(out)?;
        program::run(
            Command::new("ssh-keygen")
                .current_dir(out)
                .args(["-q", "-Y", "sign", "-n", NAMESPACE, "-f"])
                .arg(&self.0)
                .arg(SUMS),
        )?;
        let mut check = Command::new("ssh-keygen");
        check
            .current_dir(out)
            .args([
                "-q",
                "-Y",
                "check-novalidate",
                "-n",
                NAMESPACE,
                "-s",
                SIGNATURE,
            ])
            .stdin(File::open(out.join(SUMS))?);
        program::output(&mut check).map(drop)
    }

    /// True if `deploy/allowed_signers` contains the signing key, so that users can verify the
    /// signature.
    pub(super) fn is_published(repository: &Repository, out: &Path) -> bool {
        let signers = repository.path(SIGNERS);
        let mut find = Command::new("ssh-keygen");
        find.args(["-q", "-Y", "find-principals", "-f"])
            .arg(signers)
            .arg("-s")
            .arg(out.join(SIGNATURE));
        program::succeeds(&mut find)
    }
}

/// Removes the signature of an earlier build, because nothing is signed without a key.
pub(super) fn remove(out: &Path) -> Result<()> {
    let path = out.join(SIGNATURE);
    if path.exists() {
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

pub(super) const SUMS: &str = "SHA256SUMS";
pub(super) const SIGNATURE: &str = "SHA256SUMS.sig";
pub(super) const VARIABLE: &str = "SVC_SIGNING_KEY";
/// The valid signers, in the format of OpenSSH.
pub(super) const SIGNERS: &str = "deploy/allowed_signers";
/// A signature for another purpose is not valid for a release.
const NAMESPACE: &str = "svc-release";

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    /// The command in `deploy/README.md`, with a key of the test.
    #[test]
    fn a_signature_is_only_valid_for_the_signed_files() {
        let repository = Repository::of_this_package().unwrap();
        let target = repository.target_directory().unwrap();
        let out = target.join("dist-tests/signature");
        if out.exists() {
            fs::remove_dir_all(&out).unwrap();
        }
        fs::create_dir_all(&out).unwrap();
        // Outside of every checkout.
        let keys = env::temp_dir().join(format!("svc-signing-{}", std::process::id()));
        fs::create_dir_all(&keys).unwrap();
        let path = keys.join("key");
        let mut generate = Command::new("ssh-keygen");
        generate.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]);
        program::run(generate.arg(&path)).unwrap();
        fs::write(out.join(SUMS), "00  svc.deb\n").unwrap();
        // A stale signature of an earlier release is removed.
        fs::write(out.join(SIGNATURE), "stale").unwrap();
        let key = SigningKey::at(repository.root(), &path).unwrap();
        key.sign(&out).unwrap();
        assert!(!SigningKey::is_published(&repository, &out));

        let public = fs::read_to_string(keys.join("key.pub")).unwrap();
        fs::write(out.join("allowed_signers"), format!("svc {public}")).unwrap();
        fs::remove_dir_all(&keys).unwrap();
        let verify = || {
            let sums = File::open(out.join(SUMS)).unwrap();
            let mut words = documented_verification();
            words.retain(|word| word != "<");
            assert_eq!(words.pop().as_deref(), Some(SUMS));
            let mut verify = Command::new(&words[0]);
            verify.current_dir(&out).args(&words[1..]).stdin(sums);
            let status = verify.stdout(Stdio::null()).stderr(Stdio::null()).status();
            status.unwrap().success()
        };
        assert!(verify());
        fs::write(out.join(SUMS), "11  svc.deb\n").unwrap();
        assert!(!verify());
    }

    fn documented_verification() -> Vec<String> {
        let repository = Repository::of_this_package().unwrap();
        let page = repository.read("deploy/README.md").unwrap();
        let mut lines = page.lines();
        let line = lines
            .find(|line| line.starts_with("ssh-keygen -Y verify"))
            .unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_key_in_the_repository_is_refused() {
        let repository = Repository::of_this_package().unwrap();
        let refused = SigningKey::at(repository.root(), &repository.path("LICENSE"));
        assert!(refused.is_err());
    }
}
