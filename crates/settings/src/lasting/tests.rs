//! Precedence of sources, the files written, and positions in errors.

use std::fs;

use super::*;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let dir = std::env::temp_dir().join(format!("sheaf-lasting-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Place(dir)
    }

    fn given(&self, more: &[(&str, &str, Origin)]) -> Vec<Given> {
        let dir = ("dir", self.0.to_str().unwrap(), Origin::Flag);
        let given = |&(name, value, origin): &(&str, &str, Origin)| Given {
            name: name.into(),
            value: value.into(),
            origin,
        };
        [dir].iter().chain(more).map(given).collect()
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.0.join(name), text).unwrap();
        self.0.join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Stands for the mark in the control file.
fn marked() -> Result<(), NotStored> {
    Ok(())
}

#[test]
fn a_later_layer_overrides_an_earlier_one() {
    let place = Place::new("layers");
    place.file(KEPT_FILE, "maxmemory = 1\ntimeout = 1\nmaxclients = 1\nslowlog-max-len = 1\n");
    let config = place.file("sheaf.toml", "timeout = 2\nmaxclients = 2\nslowlog-max-len = 2\n");
    let given = [("maxclients", "3", Origin::Variable), ("slowlog-max-len", "4", Origin::Flag)];
    let (settings, lasting) = Lasting::load(Some(config), place.given(&given)).unwrap();
    for (key, value, origin) in [
        (Key::Maxmemory, 1, Origin::Kept),
        (Key::Timeout, 2, Origin::File),
        (Key::Maxclients, 3, Origin::Variable),
        (Key::SlowlogMaxLen, 4, Origin::Flag),
        (Key::TcpKeepalive, 300, Origin::Default),
    ] {
        assert_eq!((settings.integer(key), lasting.origin(key)), (value, origin), "{key:?}");
    }
}

#[test]
fn settings_are_kept_without_a_configuration_file() {
    let place = Place::new("kept");
    let (mut settings, mut lasting) = Lasting::load(None, place.given(&[])).unwrap();
    settings.set("maxmemory", "5mb").unwrap();
    settings.set("requirepass", "pass").unwrap();
    lasting.keep(&settings, &[Key::Maxmemory, Key::Requirepass, Key::Timeout], &marked).unwrap();
    let (again, mut lasting) = Lasting::load(None, place.given(&[])).unwrap();
    assert_eq!(again, settings);
    assert!(!place.text(KEPT_FILE).contains("timeout"), "the default needs no line");
    assert!(lasting.rewrite(&settings).unwrap_err().contains("without a config file"));
    lasting.keep_one(&settings, Key::Maxmemory, true, &marked).unwrap();
    assert!(!place.text(KEPT_FILE).contains("maxmemory"));
}

#[test]
fn a_file_in_the_directory_of_the_data_cannot_name_another_directory() {
    let place = Place::new("another-dir");
    let kept = place.file(KEPT_FILE, "timeout = 2\ndir = \"/elsewhere\"\n");
    let said = Lasting::load(None, place.given(&[])).unwrap_err().to_string();
    let expected = format!("{}, line 2: invalid value '/elsewhere' for 'dir': ", kept.display());
    assert!(said.starts_with(&expected), "{said}");
    let config = place.file("sheaf.toml", &format!("dir = \"{}\"\n", place.0.display()));
    assert!(Lasting::load(Some(config), Vec::new()).is_err(), "also of a directory that a file names");
    let own = format!("dir = \"{}\"\n", place.0.display());
    place.file(KEPT_FILE, &own);
    assert!(Lasting::load(None, place.given(&[])).is_err(), "its own name becomes another one when it moves");
}

#[test]
fn a_lost_or_cut_file_is_not_made_anew_and_no_value_is_kept_without_the_mark() {
    let place = Place::new("lost");
    let kept = place.0.join(KEPT_FILE);
    let (mut settings, mut lasting) = Lasting::load(None, place.given(&[])).unwrap();
    settings.set("requirepass", "geheim").unwrap();
    let no_room = || Err(NotStored::NoRoom("no room".into()));
    let refused = lasting.keep(&settings, &[Key::Requirepass], &no_room);
    assert_eq!(refused, Err(NotStored::NoRoom("no room".into())));
    assert!(!place.text(KEPT_FILE).contains("geheim"), "it was refused");
    let is_there = || if kept.exists() { Ok(()) } else { Err("a mark without a file".to_owned().into()) };
    lasting.keep(&settings, &[Key::Requirepass], &is_there).unwrap();
    let whole = place.text(KEPT_FILE);
    settings.set("timeout", "7").unwrap();
    place.file(KEPT_FILE, &whole[..whole.len() / 2]);
    let refused = lasting.keep(&settings, &[Key::Timeout], &marked).unwrap_err().to_string();
    assert!(refused.contains("cut or changed"), "{refused}");
    assert!(Lasting::load(None, place.given(&[])).is_err());
    fs::remove_file(&kept).unwrap();
    let gone = format!("{} no longer exists", kept.display());
    assert_eq!(lasting.keep(&settings, &[Key::Timeout], &marked), Err(gone.into()));
    place.file(KEPT_FILE, &whole);
    lasting.keep(&settings, &[Key::Timeout], &marked).unwrap();
    assert_eq!(Lasting::load(None, place.given(&[])).unwrap().0, settings);
}

#[test]
fn a_configuration_file_is_rewritten_on_request() {
    let place = Place::new("rewritten");
    let config = place.file("sheaf.toml", "timeout = 2 # seconds\n");
    let given = [("maxclients", "7", Origin::Flag)];
    let (mut settings, mut lasting) = Lasting::load(Some(config), place.given(&given)).unwrap();
    settings.set("timeout", "3").unwrap();
    settings.set("maxmemory", "5mb").unwrap();
    lasting.keep(&settings, &[Key::Timeout, Key::Maxmemory], &marked).unwrap();
    assert_eq!(
        (place.text("sheaf.toml").as_str(), place.text(KEPT_FILE).as_str()),
        ("timeout = 2 # seconds\n", "")
    );
    lasting.rewrite(&settings).unwrap();
    assert_eq!(
        place.text("sheaf.toml"),
        "timeout = 3 # seconds\nmaxmemory = 5242880\n",
        "no flag among them"
    );
}

#[test]
fn a_removed_configuration_file_is_not_created_again() {
    let place = Place::new("removed");
    let config = place.file("sheaf.toml", "requirepass = \"pass\"\n");
    let (mut settings, mut lasting) = Lasting::load(Some(config.clone()), place.given(&[])).unwrap();
    fs::remove_file(&config).unwrap();
    let gone = format!("{} no longer exists", config.display());
    assert_eq!(lasting.rewrite(&settings), Err(format!("ERR Rewriting config file: {gone}")));
    settings.set("cors", "yes").unwrap();
    assert_eq!(lasting.keep_one(&settings, Key::Cors, false, &marked), Err(gone.into()));
    assert!(!config.exists());
}

#[test]
fn a_refused_change_writes_nothing() {
    let place = Place::new("refused");
    let config = place.file("sheaf.toml", "timeout = 2\n");
    let (mut settings, mut lasting) = Lasting::load(Some(config), place.given(&[])).unwrap();
    settings.set("timeout", "700").unwrap();
    for wrong in ["bogus = 1\n", "port = \"x\"\n", "port = [1]\n", "port\n"] {
        let edited = format!("timeout = 2\n{wrong}");
        place.file("sheaf.toml", &edited);
        let rewritten = lasting.rewrite(&settings).unwrap_err();
        assert!(rewritten.contains("line 2"), "{rewritten}");
        let kept = lasting.keep_one(&settings, Key::Timeout, false, &marked).unwrap_err();
        assert!(kept.to_string().contains("line 2"), "{kept}");
        assert_eq!(place.text("sheaf.toml"), edited);
    }
    place.file("sheaf.toml", "timeout = 2\n");
    lasting.rewrite(&settings).unwrap();
    assert_eq!(place.text("sheaf.toml"), "timeout = 700\n");
}

#[test]
fn rereading_the_file_takes_changed_settings_only() {
    let place = Place::new("again");
    let config = place.file("sheaf.toml", "timeout = 2\nmaxmemory = 1\nmaxclients = 5\nport = 1\n");
    let given = [("maxclients", "7", Origin::Flag)];
    let (_, mut lasting) = Lasting::load(Some(config), place.given(&given)).unwrap();
    place.file("sheaf.toml", "timeout = 2\nmaxmemory = 9\nmaxclients = 6\nport = 2\n");
    let reread = lasting.reread().unwrap();
    let expected = Reread {
        changed: vec![(Key::Maxmemory, "9".into())],
        needs_restart: vec!["port"],
        overridden: vec!["maxclients"],
    };
    assert_eq!(reread, expected);
    assert_eq!(lasting.reread(), Ok(Reread::default()));
    place.file("sheaf.toml", "timeout = never\n");
    assert!(lasting.reread().is_err());
}

#[test]
fn a_flag_for_one_class_of_clients_leaves_the_others_to_the_file() {
    let place = Place::new("classes");
    let limits = |text: &str| format!("client-output-buffer-limit = \"{text}\"\n");
    let config = place.file("sheaf.toml", &limits("normal 1 1 1 pubsub 2 2 2"));
    let given = [("client-output-buffer-limit", "pubsub 9 9 9", Origin::Flag)];
    let (settings, mut lasting) = Lasting::load(Some(config), place.given(&given)).unwrap();
    let shown = |settings: &Settings| settings.rendered(Key::ClientOutputBufferLimit);
    assert!(shown(&settings).starts_with("normal 1 1 1") && shown(&settings).ends_with("pubsub 9 9 9"));
    place.file("sheaf.toml", &limits("normal 5 5 5 pubsub 2 2 2"));
    let reread = lasting.reread().unwrap();
    let (key, value) = &reread.changed[0];
    assert_eq!((*key, &*reread.overridden), (Key::ClientOutputBufferLimit, &[][..]));
    assert!(value.starts_with("normal 5 5 5") && value.ends_with("pubsub 9 9 9"), "{value}");
    place.file("sheaf.toml", &limits("normal 5 5 5 pubsub 3 3 3"));
    let overridden = Reread { overridden: vec!["client-output-buffer-limit"], ..Reread::default() };
    assert_eq!(lasting.reread(), Ok(overridden));
}

#[test]
fn errors_say_where_the_value_is() {
    let place = Place::new("places");
    let kept = place.0.join(KEPT_FILE);
    let error = |config: Option<PathBuf>, given: &[(&str, &str, Origin)]| {
        Lasting::load(config, place.given(given)).unwrap_err().to_string()
    };
    let said = error(None, &[("maxclients", "x", Origin::Variable)]);
    assert!(said.starts_with("SHEAF_MAXCLIENTS: invalid value 'x' for 'maxclients'"), "{said}");
    assert!(error(None, &[("port", "x", Origin::Flag)]).starts_with("--port: "));
    let config = place.file("sheaf.toml", "# a\nmaxmemory = 1\nprot = 6380\n");
    let said = error(Some(config.clone()), &[]);
    assert_eq!(said, format!("{}, line 3: unknown setting 'prot'; did you mean 'port'?", config.display()));
    for damaged in ["timeout = 1\nmaxmem", "timeout = 1\nmaxmemory = \"x\"\n"] {
        place.file(KEPT_FILE, damaged);
        assert!(error(None, &[]).starts_with(&format!("{}, line 2: ", kept.display())));
    }
}

#[test]
fn a_password_comes_from_a_file_and_from_nowhere_else() {
    let place = Place::new("password-file");
    place.file(KEPT_FILE, "requirepass = \"kept\"\n");
    let password = place.file("password", "geheim\r\nmore\n");
    let from_file = [("requirepass-file", password.to_str().unwrap(), Origin::Flag)];
    let (settings, lasting) = Lasting::load(None, place.given(&from_file)).unwrap();
    assert_eq!(settings.text(Key::Requirepass), "geheim");
    assert_eq!(lasting.origin(Key::Requirepass), Origin::Flag, "no file is written with it");
    let twice = [from_file[0], ("requirepass", "other", Origin::Variable)];
    let error = Lasting::load(None, place.given(&twice)).unwrap_err().to_string();
    assert_eq!(error, "give 'requirepass' or 'requirepass-file', not both");
    for name in ["requirepass-file", "masterauth-file", "admin-password-file"] {
        let error =
            Lasting::load(None, place.given(&[(name, "/nosuch", Origin::Flag)])).unwrap_err().to_string();
        assert!(error.starts_with("cannot read the password of /nosuch: "), "{error}");
    }
}
