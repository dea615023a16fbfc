//! Writes the seeds of all targets into the corpus: `cargo run -p fuzzing --example corpus`. Files of the
//! same names are replaced, all others stay.

use std::path::Path;
use std::{fs, io};

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (target, _) in fuzzing::TARGETS {
        let dir = corpus.join(target);
        fs::create_dir_all(&dir)?;
        let (mut files, mut bytes) = (0, 0);
        for (name, input) in fuzzing::seeds(target) {
            fs::write(dir.join(name), &input)?;
            (files, bytes) = (files + 1, bytes + input.len());
        }
        println!("{target}: {files} files, {bytes} bytes");
    }
    Ok(())
}
