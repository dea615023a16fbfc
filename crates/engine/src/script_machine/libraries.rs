//! The libraries in the script machine of a worker.
//!
//! ```text
//! keyspace: libraries, generation --> WorkerLibraries: reloads if generations differ --> machine: compiles
//! ```
//!
//! This module maps the libraries of the keyspace to those of the machine. The libraries themselves are in
//! `keyspace::Libraries`.
//!
//! Invariants
//! - A library is compiled when the worker loads it or first calls one of its functions, and again if the
//!   machine has dropped it for lack of memory. A library that was replaced or removed is dropped when
//!   another one is compiled.

use std::{collections::HashMap, sync::Arc};

use keyspace::{Function, FunctionFlags, Keyspace, Libraries, Library, PublishedLibraries};
use lsn::Lsn;
use scripting::{Calls, LibraryId, LibrarySource, LogLevel, Refusal, ScriptError, Vm};
use wire::{Args, Protocol};

use crate::{Host, ScriptSettings};

/// The maximum number of libraries of functions.
pub const LIBRARIES_MAX: usize = 1000;

/// The maximum number of functions of all libraries.
pub const FUNCTIONS_MAX: usize = 10_000;

/// The maximum bytes of one library: its code, and the names and descriptions of its functions.
const LIBRARY_BYTES_MAX: usize = 1 << 20;

/// The maximum bytes of all libraries: FLUSHALL, and each snapshot, writes them again.
pub const LIBRARIES_BYTES_MAX: usize = 16 << 20;

/// How long the code of one library may run while it is loaded. While FUNCTION LOAD runs it, no other client
/// can change libraries, or use the keys of their slot.
pub const LOADING_MS_MAX: u64 = 500;

/// As [`LOADING_MS_MAX`], for all libraries of a payload (FUNCTION RESTORE), including compilation.
pub const RESTORING_MS_MAX: u64 = 2000;

/// Loads the code of a library into the machine.
///
/// # Errors
/// The text of the error reply, which says why the library cannot be loaded.
pub fn load_library(
    vm: &mut Vm,
    code: &[u8],
    loading: &mut Loading<'_>,
) -> Result<(Library, LibraryId), ScriptError> {
    const TOO_LARGE: &[u8] = b"ERR the library is larger than 1 MiB";
    if code.len() > LIBRARY_BYTES_MAX {
        return Err(ScriptError(TOO_LARGE.to_vec()));
    }
    let LibrarySource { name, .. } = LibrarySource::of(code)?;
    let (id, registered) = vm.load_library(code, loading.deadline_us, loading)?;
    let functions = registered.into_iter().map(|function| {
        let flags = function.flags.iter().filter_map(|flag| FunctionFlags::named(flag.as_bytes()));
        Function {
            name: function.name.into(),
            description: function.description.map(Into::into),
            flags: flags.fold(FunctionFlags::default(), FunctionFlags::or),
        }
    });
    let library = Library { name: name.into(), code: code.into(), functions: functions.collect() };
    if library.bytes() > LIBRARY_BYTES_MAX {
        vm.drop_library(id);
        return Err(ScriptError(TOO_LARGE.to_vec()));
    }
    Ok((library, id))
}

/// Parses libraries that come from a file.
#[derive(Debug)]
pub struct LibraryReader(Vm);

impl Default for LibraryReader {
    fn default() -> Self {
        LibraryReader(Vm::new(ScriptSettings::default().limits()))
    }
}

impl LibraryReader {
    /// The library with this code.
    ///
    /// # Errors
    /// The reason why the library cannot be loaded, in words without an error code.
    pub fn read(&mut self, code: &[u8]) -> Result<Library, String> {
        self.0.meter().reset();
        // No client waits for this loading, so there is no clock and no deadline.
        match load_library(
            &mut self.0,
            code,
            &mut Loading { host: None, is_known: true, deadline_us: u64::MAX },
        ) {
            Ok((library, id)) => {
                self.0.drop_library(id);
                Ok(library)
            }
            Err(ScriptError(text)) => {
                let text = String::from_utf8_lossy(&text);
                Err(text.strip_prefix("ERR ").unwrap_or(&text).to_string())
            }
        }
    }
}

/// Checks the limits on the number and size of libraries and functions.
///
/// # Errors
/// If a limit is exceeded: the text of the error reply, which begins with `ERR`.
pub fn require_few_libraries(libraries: &Libraries) -> Result<(), &'static str> {
    let is_few = libraries.len() <= LIBRARIES_MAX
        && libraries.functions_len() <= FUNCTIONS_MAX
        && libraries.bytes() <= LIBRARIES_BYTES_MAX;
    if is_few { Ok(()) } else { Err(TOO_MANY) }
}

/// The refusal of a library beyond one of the limits.
pub const TOO_MANY: &str = "ERR there would be more than 1000 libraries, 10000 functions or 16 MiB of them";

/// The libraries that the machine of one worker has compiled, and the libraries of the keyspace as the worker
/// knows them.
#[derive(Debug, Default)]
pub struct WorkerLibraries {
    published: Option<PublishedLibraries>,
    /// The compiled libraries by name.
    compiled: HashMap<Box<[u8]>, (Arc<Library>, LibraryId)>,
}

impl WorkerLibraries {
    /// The current libraries, for a unit that has not locked their slot, and the gate of a reply that depends
    /// on these libraries.
    pub fn published(&mut self, keyspace: &Keyspace) -> (Arc<Libraries>, Lsn) {
        let generation = keyspace.libraries_generation();
        let known = self.published.take().filter(|known| known.generation == generation);
        let published = self.published.insert(known.unwrap_or_else(|| keyspace.libraries()));
        (published.libraries.clone(), published.lsn)
    }

    /// Returns a library in the machine; compiles it if it is not there.
    ///
    /// # Errors
    /// The text of the error reply, which says why the library cannot be loaded any more.
    pub fn compile(
        &mut self,
        vm: &mut Vm,
        library: &Arc<Library>,
        libraries: &Libraries,
        host: &Host,
    ) -> Result<LibraryId, ScriptError> {
        if let Some((known, id)) = self.compiled.get(&library.name)
            && Arc::ptr_eq(known, library)
            && vm.has_library(*id)
        {
            return Ok(*id);
        }
        let mut loading = Loading { is_known: true, ..Loading::begin(host, LOADING_MS_MAX) };
        let (id, _) = vm.load_library(&library.code, loading.deadline_us, &mut loading)?;
        self.note(vm, library.clone(), id, libraries);
        Ok(id)
    }

    /// Records that the machine has this library, and drops replaced and removed ones.
    pub fn note(&mut self, vm: &mut Vm, library: Arc<Library>, id: LibraryId, libraries: &Libraries) {
        self.compiled.retain(|name, (known, id)| {
            let holds = **name != *library.name
                && libraries.get(name).is_some_and(|library| Arc::ptr_eq(known, library));
            if !holds {
                vm.drop_library(*id);
            }
            holds
        });
        self.compiled.insert(library.name.clone(), (library, id));
    }
}

/// The services for a library while it is loaded: the log of the process, and the time.
pub struct Loading<'h> {
    host: Option<&'h Host>,
    /// Whether the messages that the library logs are dropped, because it is not new.
    is_known: bool,
    deadline_us: u64,
}

impl<'h> Loading<'h> {
    /// Begins a loading that may take `ms`.
    pub fn begin(host: &'h Host, ms: u64) -> Loading<'h> {
        Loading { host: Some(host), is_known: false, deadline_us: host.monotonic_us() + ms * 1000 }
    }
}

impl Calls for Loading<'_> {
    fn call(&mut self, _args: Args<'_>, _protocol: Protocol, _reply: &mut Vec<u8>) -> Result<(), Refusal> {
        Err(Refusal::Error("ERR This Redis command is not allowed from script".to_string()))
    }

    fn may_call(&mut self, _args: Args<'_>) -> Option<bool> {
        None
    }

    fn clock_us(&self) -> u64 {
        self.host.map_or(0, Host::monotonic_us)
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        if let Some(host) = self.host.filter(|_| !self.is_known) {
            host.process.log_script(level, &String::from_utf8_lossy(message));
        }
    }
}
