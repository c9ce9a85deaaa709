//! The cost database: what was measured and refused before, on this machine and on others.
//!
//! One SQLite file. A record is found by the hash of its key; the whole key is stored beside it and
//! compared, so a collision is never taken for a hit. Records of other machines are kept and never
//! used as measurements. A file that cannot be read is set aside and a new one begun.

use crate::{Machine, Measurement};
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

const SCHEMA: i64 = 1;

/// Everything that a time depends on, as canonical text: the region with all attributes, formats,
/// threads, backend with its version, and the kernel's variant. The machine is added by the database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub String);

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// It ran, was found right, and took this long.
    Measured {
        /// The time.
        measurement: Measurement,
        /// Largest error found by the gate, over the allowed error; at most 1.
        error_share: f64,
        /// Bytes of workspace that the kernel declared.
        workspace: u64,
        /// Whether it was timed in turn with everything else that could be chosen.
        refined: bool,
    },
    /// It was tried and cannot be used, for this reason.
    Refused(String),
}

/// Why the database cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// The folder or the file cannot be made.
    #[error("cannot open the cost database `{path}`: {why}")]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// A read or a write failed.
    #[error("the cost database failed: {0}")]
    Failed(#[from] rusqlite::Error),
}

/// An open database, and where a damaged one was set aside.
pub struct Opened {
    /// Ready for use.
    pub database: Database,
    /// The damaged file's new name, when there was one.
    pub set_aside: Option<PathBuf>,
}

/// The cost database of one user on one machine.
pub struct Database {
    connection: Connection,
    machine: String,
}

impl Database {
    /// Opens or creates `costs.sqlite` in `folder`.
    pub fn open(folder: &Path, machine: &Machine) -> Result<Opened, DatabaseError> {
        let path = folder.join("costs.sqlite");
        let fault = |why: String| DatabaseError::Open { path: path.clone(), why };
        fs::create_dir_all(folder).map_err(|e| fault(e.to_string()))?;
        let set_aside = match connect(&path) {
            Ok(connection) => {
                let database = Database { connection, machine: machine.fingerprint() };
                return Ok(Opened { database, set_aside: None });
            }
            Err(error) if is_damage(&error) && path.exists() => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
                let aside = folder.join(format!("costs.damaged-{now}.sqlite"));
                fs::rename(&path, &aside).map_err(|e| fault(e.to_string()))?;
                for rest in ["costs.sqlite-wal", "costs.sqlite-shm"] {
                    // They belong to the damaged file; a missing one is as good as a removed one.
                    let _ = fs::remove_file(folder.join(rest));
                }
                Some(aside)
            }
            Err(error) => return Err(fault(error.to_string())),
        };
        let connection = connect(&path).map_err(|e| fault(e.to_string()))?;
        Ok(Opened { database: Database { connection, machine: machine.fingerprint() }, set_aside })
    }

    /// A database that is forgotten when it is dropped.
    pub fn in_memory(machine: &Machine) -> Result<Database, DatabaseError> {
        let connection = Connection::open_in_memory()?;
        create(&connection)?;
        Ok(Database { connection, machine: machine.fingerprint() })
    }

    /// The record of `key` on this machine. An unreadable record counts as none.
    pub fn get(&self, key: &Key) -> Result<Option<Record>, DatabaseError> {
        let row: Option<(String, String)> = self
            .connection
            .prepare_cached("SELECT key, record FROM costs WHERE hash = ?1 AND machine = ?2")?
            .query_row(params![hash(&key.0), self.machine], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        Ok(row
            .filter(|(stored, _)| *stored == key.0)
            .and_then(|(_, record)| serde_json::from_str(&record).ok()))
    }

    /// Stores `record`, in place of an older one of the same key and machine. It survives a kill.
    pub fn put(&self, key: &Key, record: &Record) -> Result<(), DatabaseError> {
        let text = serde_json::to_string(record).expect("records serialise");
        self.connection
            .prepare_cached(
                "INSERT OR REPLACE INTO costs (hash, machine, key, record, taken) VALUES (?1, ?2, ?3, ?4, unixepoch())",
            )?
            .execute(params![hash(&key.0), self.machine, key.0, text])?;
        Ok(())
    }

    /// A small text kept under a name for this machine, such as the result of a whole-model check.
    pub fn note(&self, name: &str) -> Result<Option<String>, DatabaseError> {
        Ok(self
            .connection
            .prepare_cached("SELECT text FROM notes WHERE name = ?1 AND machine = ?2")?
            .query_row(params![name, self.machine], |row| row.get(0))
            .optional()?)
    }

    /// Keeps `text` under `name` for this machine.
    pub fn set_note(&self, name: &str, text: &str) -> Result<(), DatabaseError> {
        self.connection
            .prepare_cached(
                "INSERT OR REPLACE INTO notes (name, machine, text) VALUES (?1, ?2, ?3)",
            )?
            .execute(params![name, self.machine, text])?;
        Ok(())
    }

    /// How many records there are, of this machine and of others.
    pub fn len(&self) -> Result<u64, DatabaseError> {
        let count: i64 =
            self.connection.query_row("SELECT count(*) FROM costs", [], |row| row.get(0))?;
        Ok(count.unsigned_abs())
    }

    /// Whether there is no record at all.
    pub fn is_empty(&self) -> Result<bool, DatabaseError> {
        Ok(self.len()? == 0)
    }
}

fn hash(text: &str) -> Vec<u8> {
    blake3::hash(text.as_bytes()).as_bytes().to_vec()
}

fn connect(path: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    create(&connection)?;
    let sound: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if sound == "ok" { Ok(connection) } else { Err(rusqlite::Error::InvalidQuery) }
}

/// Whether the file itself is at fault, and not the disk or who may write there.
fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(fault, _) => {
            use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
            matches!(fault.code, DatabaseCorrupt | NotADatabase)
        }
        rusqlite::Error::InvalidQuery => true,
        _ => false,
    }
}

fn create(connection: &Connection) -> Result<(), rusqlite::Error> {
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version != 0 && version != SCHEMA {
        return Err(rusqlite::Error::InvalidQuery);
    }
    connection.execute_batch(&format!(
        "CREATE TABLE IF NOT EXISTS costs (
             hash BLOB NOT NULL, machine TEXT NOT NULL, key TEXT NOT NULL, record TEXT NOT NULL,
             taken INTEGER NOT NULL, PRIMARY KEY (hash, machine));
         CREATE TABLE IF NOT EXISTS notes (
             name TEXT NOT NULL, machine TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (name, machine));
         PRAGMA user_version = {SCHEMA};"
    ))
}
