//! Facts about the machine from the kernel, for tools: memory policy, clock, kinds of file systems.
//!
//! Figures of this process are in [`process`](crate::process).
//!
//! Invariants
//! - Nothing is changed. A fact that the kernel does not give, for example in a container, is `None` or an
//!   error.

#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::path::Path;

/// The policy for transparent huge pages: `always`, `madvise` or `never`.
pub fn transparent_huge_pages() -> Option<String> {
    chosen(&fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?)
}

/// The word in brackets, which is the chosen one of several.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_owned())
}

/// `vm.overcommit_memory`: 0 heuristic, 1 always, 2 never.
pub fn overcommit_memory() -> Option<u8> {
    fs::read_to_string("/proc/sys/vm/overcommit_memory").ok()?.trim().parse().ok()
}

/// Whether the kernel's clock is kept synchronised (by chrony, ntpd, systemd-timesyncd, the hypervisor).
pub fn clock_is_synchronized() -> Option<bool> {
    let mut state = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: `state` is writable memory of the right type, and all zeros are a value of it: `modes` 0 asks,
    // and changes nothing.
    let answer = unsafe { libc::adjtimex(state.as_mut_ptr()) };
    // SAFETY: it was zeroed, which is a value of the type.
    let state = unsafe { state.assume_init() };
    (answer >= 0).then_some(answer != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0)
}

/// The place where a file system keeps its files. It decides what can happen to the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystemKind {
    /// The files are on a disk, or the kind is unknown.
    Disk,
    /// The files are in memory, so a power cut loses them.
    Memory,
    /// The files are on another machine.
    Network,
    /// The files are in the layer of a container, and are removed with the container.
    Container,
}

/// The name and the kind of a file system, looked up by the number that the kernel gives its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem {
    /// The usual name of the file system; `None` if it is not in the table.
    pub name: Option<&'static str>,
    /// The kind of the file system.
    pub kind: FileSystemKind,
}

/// The known types of file systems, by their numbers in `statfs(2)`.
const FILE_SYSTEMS: &[(u32, &str, FileSystemKind)] = &[
    (0xef53, "ext4", FileSystemKind::Disk),
    (0x5846_5342, "xfs", FileSystemKind::Disk),
    (0x9123_683e, "btrfs", FileSystemKind::Disk),
    (0xf2f5_2010, "f2fs", FileSystemKind::Disk),
    (0x2fc1_2fc1, "zfs", FileSystemKind::Disk),
    (0x0102_1994, "tmpfs", FileSystemKind::Memory),
    (0x8584_58f6, "ramfs", FileSystemKind::Memory),
    (0x6969, "nfs", FileSystemKind::Network),
    (0xff53_4d42, "cifs", FileSystemKind::Network),
    (0xfe53_4d42, "smb", FileSystemKind::Network),
    (0x00c3_6400, "ceph", FileSystemKind::Network),
    (0x0102_1997, "9p", FileSystemKind::Network),
    (0x794c_7630, "overlay", FileSystemKind::Container),
];

/// The file system of `dir`.
///
/// # Errors
/// If the directory cannot be opened, or the system does not report its file system.
pub fn file_system(dir: &Path) -> io::Result<FileSystem> {
    let file = fs::File::open(if dir.as_os_str().is_empty() { Path::new(".") } else { dir })?;
    let mut stats = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `stats` is writable memory of the right type; the descriptor is open.
    if unsafe { libc::fstatfs(file.as_raw_fd(), stats.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has filled `stats`.
    let stats = unsafe { stats.assume_init() };
    // The type is a number of 32 bits, whose sign differs between platforms.
    Ok(of_type(stats.f_type as u32))
}

fn of_type(number: u32) -> FileSystem {
    let known = FILE_SYSTEMS.iter().find(|(known, ..)| *known == number);
    known.map_or(FileSystem { name: None, kind: FileSystemKind::Disk }, |(_, name, kind)| FileSystem {
        name: Some(name),
        kind: *kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_in_brackets_is_in_force() {
        assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(chosen("never\n"), None);
    }

    #[test]
    fn file_systems_have_kinds() {
        assert_eq!(of_type(0x0102_1994).kind, FileSystemKind::Memory);
        assert_eq!(of_type(0x6969).kind, FileSystemKind::Network);
        assert_eq!(of_type(1), FileSystem { name: None, kind: FileSystemKind::Disk });
    }

    #[test]
    fn this_machine_answers() {
        assert_eq!(file_system(Path::new("/no/such")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(file_system(Path::new("/dev/shm")).map(|it| it.kind).ok(), Some(FileSystemKind::Memory));
        assert!(file_system(Path::new("")).is_ok());
        // The results depend on the machine; the calls must not fail.
        let _ = (clock_is_synchronized(), overcommit_memory(), transparent_huge_pages());
    }
}
