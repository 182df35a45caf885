//! What lies in a folder, and what a change of it can be seen by.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::FilesError;

/// What a change of a file can be seen by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stamp {
    modified: (i64, i64),
    pub(super) bytes: u64,
    inode: u64,
}

/// Whether a file of a folder is read.
pub(crate) fn is_manifest(path: &Path) -> bool {
    let is_hidden = path
        .file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = path.extension().and_then(|extension| extension.to_str());
    !is_hidden && matches!(extension, Some("yaml" | "yml" | "json"))
}

/// The files of a folder, not of the folders in it.
pub(super) fn stamps(
    folder: &Path,
    counts: impl Fn(&Path) -> bool,
) -> Result<BTreeMap<PathBuf, Stamp>, FilesError> {
    let read = || {
        let mut stamps = BTreeMap::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if !counts(&path) {
                continue;
            }
            match std::fs::metadata(&path) {
                Ok(metadata) if metadata.is_file() => {
                    let stamp = Stamp {
                        modified: (metadata.mtime(), metadata.mtime_nsec()),
                        bytes: metadata.len(),
                        inode: metadata.ino(),
                    };
                    stamps.insert(path, stamp);
                }
                Ok(_) => {}
                // Gone since the folder was read, or a dangling link.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(stamps)
    };
    read().map_err(|source| FilesError::Folder {
        folder: folder.to_owned(),
        source,
    })
}
