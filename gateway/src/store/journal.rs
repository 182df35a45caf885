//! A journal beside a SQLite database: what must be durable now and may become rows later.
//!
//! A commit takes several statements and a sync; adding to a file takes one write and one sync of data. Two files take
//! turns: while one is written, what the other holds becomes rows, and then it is written from its start again. So a
//! file may end in records of an earlier turn, and after a crash in half a record: whoever reads them must be able to
//! tell.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes after which the other file may be written.
const TURN: u64 = 4 << 20;
/// A file takes its place on the disk in steps: a sync within it writes no metadata.
const STEP: usize = 256 << 10;

/// An open journal, of one writer.
pub struct Journal {
    paths: [PathBuf; 2],
    files: [Turn; 2],
    current: usize,
}

struct Turn {
    file: File,
    /// Bytes that have their place on the disk.
    length: u64,
    /// Where the next record goes.
    end: u64,
}

impl Journal {
    pub(super) fn open(folder: &Path, name: &str) -> io::Result<Self> {
        let paths = paths(folder, name);
        let [first, second] = paths.each_ref().map(|path| Turn::open(path));
        let journal = Self {
            paths,
            files: [first?, second?],
            current: 0,
        };
        // So that the files themselves survive.
        File::open(folder)?.sync_all()?;
        Ok(journal)
    }

    /// What was written, in no order: old, half and broken lines are among them.
    pub fn lines(&self) -> io::Result<Vec<Vec<u8>>> {
        lines(&self.paths)
    }

    /// Adds records, each a line, and returns once they are durable. After an error nobody knows what is: use no more.
    pub fn add(&mut self, records: &[u8]) -> io::Result<()> {
        self.files[self.current].add(records)
    }

    /// Which of the two files is written: 0 or 1.
    pub fn turn(&self) -> usize {
        self.current
    }

    /// Whether it is time to write the other file.
    pub fn is_long(&self) -> bool {
        self.files[self.current].end >= TURN
    }

    /// Writes the other file from its start. What it holds must be durable elsewhere.
    pub fn take_turns(&mut self) {
        self.current = 1 - self.current;
        let turn = &mut self.files[self.current];
        turn.end = 0;
        if turn.length > 2 * TURN && turn.file.set_len(TURN).is_ok() {
            turn.length = TURN;
        }
    }

    /// Forgets all records. What it holds must be durable elsewhere.
    pub fn clear(&mut self) -> io::Result<()> {
        for turn in &mut self.files {
            turn.file.set_len(0)?;
            turn.file.sync_data()?;
            (turn.length, turn.end) = (0, 0);
        }
        Ok(())
    }
}

impl Turn {
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        let length = file.metadata()?.len();
        Ok(Self {
            file,
            length,
            end: 0,
        })
    }

    fn add(&mut self, records: &[u8]) -> io::Result<()> {
        let end = self.end + records.len() as u64;
        while self.length < end {
            self.file.write_all_at(&[0; STEP], self.length)?;
            self.length += STEP as u64;
        }
        self.file.write_all_at(records, self.end)?;
        self.file.sync_data()?;
        self.end = end;
        Ok(())
    }
}

/// The lines of a journal; none where there is no journal.
pub(super) fn read(folder: &Path, name: &str) -> io::Result<Vec<Vec<u8>>> {
    lines(&paths(folder, name))
}

fn lines(paths: &[PathBuf; 2]) -> io::Result<Vec<Vec<u8>>> {
    let mut lines = Vec::new();
    for path in paths {
        match std::fs::read(path) {
            Ok(bytes) => {
                let records = bytes.split(|byte| *byte == b'\n' || *byte == 0);
                lines.extend(records.filter(|line| !line.is_empty()).map(<[u8]>::to_vec));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(lines)
}

fn paths(folder: &Path, name: &str) -> [PathBuf; 2] {
    [0, 1].map(|turn| folder.join(format!("{name}.{turn}.journal")))
}
