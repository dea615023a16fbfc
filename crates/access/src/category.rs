//! Categories of commands, by which a rule names many commands at once.

/// A category: the topic of its commands, or a property that they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Category {
    /// Commands on keys of any type, and on databases.
    Keyspace,
    /// Commands that read values.
    Read,
    /// Commands that change values.
    Write,
    /// Commands on sets.
    Set,
    /// Commands on sorted sets.
    SortedSet,
    /// Commands on lists.
    List,
    /// Commands on hashes.
    Hash,
    /// Commands on strings.
    String,
    /// Commands on bitmaps.
    Bitmap,
    /// Commands on HyperLogLogs.
    Hyperloglog,
    /// Commands on geographic positions.
    Geo,
    /// Commands on streams.
    Stream,
    /// Commands on channels.
    Pubsub,
    /// Commands for administrators.
    Admin,
    /// Commands that take constant or logarithmic time.
    Fast,
    /// All commands that are not fast.
    Slow,
    /// Commands that may wait.
    Blocking,
    /// Commands that can harm the server or its data.
    Dangerous,
    /// Commands about the connection itself.
    Connection,
    /// Commands that control transactions.
    Transaction,
    /// Commands on scripts and functions.
    Scripting,
    /// Commands on documents; Redis has no such category.
    Documents,
}

impl Category {
    /// All categories: first the categories of Redis in the order of ACL CAT, then Sheaf's own.
    pub const ALL: [Category; 22] = [
        Category::Keyspace,
        Category::Read,
        Category::Write,
        Category::Set,
        Category::SortedSet,
        Category::List,
        Category::Hash,
        Category::String,
        Category::Bitmap,
        Category::Hyperloglog,
        Category::Geo,
        Category::Stream,
        Category::Pubsub,
        Category::Admin,
        Category::Fast,
        Category::Slow,
        Category::Blocking,
        Category::Dangerous,
        Category::Connection,
        Category::Transaction,
        Category::Scripting,
        Category::Documents,
    ];

    /// The name, without `@`.
    pub const fn name(self) -> &'static str {
        match self {
            Category::Keyspace => "keyspace",
            Category::Read => "read",
            Category::Write => "write",
            Category::Set => "set",
            Category::SortedSet => "sortedset",
            Category::List => "list",
            Category::Hash => "hash",
            Category::String => "string",
            Category::Bitmap => "bitmap",
            Category::Hyperloglog => "hyperloglog",
            Category::Geo => "geo",
            Category::Stream => "stream",
            Category::Pubsub => "pubsub",
            Category::Admin => "admin",
            Category::Fast => "fast",
            Category::Slow => "slow",
            Category::Blocking => "blocking",
            Category::Dangerous => "dangerous",
            Category::Connection => "connection",
            Category::Transaction => "transaction",
            Category::Scripting => "scripting",
            Category::Documents => "documents",
        }
    }

    /// The category of this name, in any case, without `@`.
    pub fn named(name: &[u8]) -> Option<Category> {
        Self::ALL.into_iter().find(|category| category.name().as_bytes().eq_ignore_ascii_case(name))
    }
}

/// A set of categories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Categories(u32);

impl Categories {
    /// No category.
    pub const NONE: Categories = Categories(0);

    /// Whether the set has this category.
    pub const fn has(self, category: Category) -> bool {
        self.0 >> category as u8 & 1 != 0
    }

    /// The set with this category added.
    #[must_use]
    pub const fn with(self, category: Category) -> Categories {
        Categories(self.0 | 1 << category as u8)
    }

    /// The categories in the set, in the order of [`Category::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Category> {
        Category::ALL.into_iter().filter(move |category| self.has(*category))
    }
}

impl FromIterator<Category> for Categories {
    fn from_iter<I: IntoIterator<Item = Category>>(categories: I) -> Categories {
        categories.into_iter().fold(Categories::NONE, Categories::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_category_has_a_name_and_a_bit_of_its_own() {
        for category in Category::ALL {
            assert_eq!(Category::named(category.name().to_ascii_uppercase().as_bytes()), Some(category));
            assert_eq!(Categories::NONE.with(category).iter().collect::<Vec<_>>(), [category]);
        }
        assert_eq!(Category::named(b"all"), None, "all commands are no category");
        assert_eq!(Category::ALL.into_iter().collect::<Categories>().iter().count(), Category::ALL.len());
    }
}
