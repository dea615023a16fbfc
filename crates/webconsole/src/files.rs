//! The files of the page.

use std::{io::Write, sync::OnceLock};

use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};

/// The limit of the bytes of all files together, uncompressed, as they are in the binary.
pub const FILES_BYTES_MAX: usize = 500_000;

/// Bytes of the checksum in a tag.
const TAG_BYTES: usize = 12;

/// A file of the page.
#[derive(Debug)]
pub struct File {
    name: &'static str,
    /// The content of the file.
    pub bytes: &'static [u8],
    gzip: OnceLock<Vec<u8>>,
    tag: OnceLock<String>,
}

macro_rules! files {
    ($($name:literal,)*) => {
        [$(File::new($name, include_bytes!(concat!("../files/", $name))),)*]
    };
}

static FILES: [File; FILES_COUNT] = files![
    "api.js",
    "app.js",
    "bytes.js",
    "chart.js",
    "compare.js",
    "dialog.js",
    "dom.js",
    "format.js",
    "icon.svg",
    "index.html",
    "info.js",
    "keyspace.js",
    "layout.css",
    "login.js",
    "metrics.js",
    "parts.css",
    "poll.js",
    "rights.js",
    "theme.css",
    "vendor/uPlot-LICENSE.txt",
    "vendor/uPlot.css",
    "vendor/uPlot.js",
    "views.js",
    "views/channels.js",
    "views/clients.js",
    "views/databases.js",
    "views/document.js",
    "views/key.js",
    "views/keys.js",
    "views/memory.js",
    "views/overview.js",
    "views/replication.js",
    "views/slow.js",
    "views/snapshots.js",
    "views/stream.js",
    "views/streams.js",
    "views/terminal.js",
    "views/values.js",
];

const FILES_COUNT: usize = 38;

/// The file of this name, which is its path below `/_console/`.
pub fn file(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name)
}

impl File {
    const fn new(name: &'static str, bytes: &'static [u8]) -> File {
        File { name, bytes, gzip: OnceLock::new(), tag: OnceLock::new() }
    }

    /// The media type of the file, for `Content-Type`.
    pub fn media_type(&self) -> &'static str {
        match self.name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/plain; charset=utf-8",
        }
    }

    /// The content of the file in gzip. It is compressed at the first call.
    pub fn gzip(&'static self) -> &'static [u8] {
        self.gzip.get_or_init(|| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            // A write to a `Vec` does not fail.
            encoder.write_all(self.bytes).and_then(|()| encoder.finish()).unwrap_or_default()
        })
    }

    /// The tag of the file's content, for `ETag`.
    pub fn tag(&'static self) -> &'static str {
        self.tag.get_or_init(|| hex::encode(&Sha256::digest(self.bytes)[..TAG_BYTES]))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, io::Read, path::Path};

    use flate2::read::GzDecoder;

    use super::*;

    fn names_below(directory: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => names_below(&entry.path(), &format!("{name}/"), found),
                false => _ = found.insert(name),
            }
        }
    }

    #[test]
    fn the_binary_has_every_file_and_they_are_small() {
        let mut on_disk = BTreeSet::new();
        names_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("files"), "", &mut on_disk);
        let embedded: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
        assert_eq!(embedded, on_disk);
        let bytes: usize = FILES.iter().map(|file| file.bytes.len()).sum();
        assert!(bytes < FILES_BYTES_MAX, "{bytes}");
    }

    #[test]
    fn gzip_contents_equal_the_file() {
        for file in &FILES {
            let mut inflated = Vec::new();
            GzDecoder::new(file.gzip()).read_to_end(&mut inflated).unwrap();
            assert_eq!(inflated, file.bytes, "{}", file.name);
        }
        assert_ne!(FILES[0].tag(), FILES[1].tag());
    }

    #[test]
    fn every_file_that_the_page_names_exists_and_nothing_is_loaded_from_elsewhere() {
        let page = std::str::from_utf8(file("index.html").unwrap().bytes).unwrap();
        let named: Vec<&str> =
            page.split(['"', '\'']).filter_map(|text| text.strip_prefix("/_console/")).collect();
        let modules = FILES.iter().filter(|file| file.name.ends_with(".js"));
        assert!(modules.clone().count() > 20 && modules.clone().all(|module| named.contains(&module.name)));
        for name in named {
            assert!(file(name).is_some(), "{name}");
        }
        for file in FILES.iter().filter(|file| file.name.ends_with(".js") && !file.name.contains("vendor")) {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for foreign in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "https://"]
            {
                assert!(!text.contains(foreign), "{}: {foreign}", file.name);
            }
        }
    }
}
