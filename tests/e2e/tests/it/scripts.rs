//! The project's Python scripts are compiled with the machine's Python, so that errors in scripts
//! without a test are found.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use e2e::python;

/// Compiles each given file without writing, and reports those that fail.
const READ: &str = "\
import ast, pathlib, sys
bad = []
files = [f for d in sys.argv[1:] for f in sorted(pathlib.Path(d).rglob('*.py'))]
for file in files:
    try:
        ast.parse(file.read_bytes(), str(file))
    except SyntaxError as error:
        bad.append(f'{file}:{error.lineno}: {error.msg}')
print(len(files))
sys.exit('\\n'.join(bad) or None)
";

#[test]
fn every_script_of_the_bench_can_be_compiled() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = Command::new(python()?)
        .args(["-c", READ])
        .arg(root.join("bench"))
        .output()?;
    let output_text = String::from_utf8_lossy(&read.stderr);
    assert!(read.status.success(), "{output_text}");
    let files: usize = String::from_utf8(read.stdout)?.trim().parse()?;
    assert!(files > 10, "{files} files were read");
    Ok(())
}
