package protocol

// Bodies of the file operations, as packages/contract/src/guest-files.ts defines them. A field that is absent is nil or zero.

type FileInfo struct {
	Path       string `json:"path"`
	Name       string `json:"name"`
	Type       string `json:"type"`
	SizeBytes  int64  `json:"size_bytes"`
	Mode       string `json:"mode"`
	UID        uint32 `json:"uid"`
	GID        uint32 `json:"gid"`
	User       string `json:"user,omitempty"`
	Group      string `json:"group,omitempty"`
	ModifiedAt string `json:"modified_at"`
	Target     string `json:"target,omitempty"`
	BadName    bool   `json:"bad_name,omitempty"`
}

// Owner is an account's name, or numbers.
type Owner struct {
	User string  `json:"user,omitempty"`
	UID  *uint32 `json:"uid,omitempty"`
	GID  *uint32 `json:"gid,omitempty"`
}

type Done struct{}

type StatRequest struct {
	Path   string `json:"path"`
	Follow bool   `json:"follow,omitempty"`
}

type ListRequest struct {
	Path      string `json:"path"`
	Recursive bool   `json:"recursive,omitempty"`
	MaxDepth  *int   `json:"max_depth,omitempty"`
	Limit     *int   `json:"limit,omitempty"`
	After     string `json:"after,omitempty"`
}

type Listing struct {
	Entries   []FileInfo `json:"entries"`
	Truncated bool       `json:"truncated"`
}

type MkdirRequest struct {
	Path    string `json:"path"`
	Parents bool   `json:"parents,omitempty"`
	Mode    string `json:"mode,omitempty"`
	Owner
}

// TransferRequest is that of move and copy.
type TransferRequest struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Recursive bool   `json:"recursive,omitempty"`
	Overwrite bool   `json:"overwrite,omitempty"`
}

type RemoveRequest struct {
	Path      string `json:"path"`
	Recursive bool   `json:"recursive,omitempty"`
	MissingOK bool   `json:"missing_ok,omitempty"`
}

type Removed struct {
	Removed int64 `json:"removed"`
}

type SymlinkRequest struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

type ChmodRequest struct {
	Path      string `json:"path"`
	Mode      string `json:"mode"`
	Recursive bool   `json:"recursive,omitempty"`
}

type ChownRequest struct {
	Path string `json:"path"`
	Owner
	Recursive bool `json:"recursive,omitempty"`
}

type FileGlobRequest struct {
	Cwd      string   `json:"cwd,omitempty"`
	Patterns []string `json:"patterns"`
	Limit    *int     `json:"limit,omitempty"`
}

type SearchRequest struct {
	Path       string   `json:"path"`
	Pattern    string   `json:"pattern"`
	Literal    bool     `json:"literal,omitempty"`
	IgnoreCase bool     `json:"ignore_case,omitempty"`
	Include    []string `json:"include,omitempty"`
	Exclude    []string `json:"exclude,omitempty"`
	Context    int      `json:"context,omitempty"`
	Limit      *int     `json:"limit,omitempty"`
}

type SearchMatch struct {
	Path   string   `json:"path"`
	Line   int      `json:"line"`
	Column int      `json:"column"`
	Text   string   `json:"text"`
	Before []string `json:"before,omitempty"`
	After  []string `json:"after,omitempty"`
}

type SearchResult struct {
	Matches       []SearchMatch `json:"matches"`
	Truncated     bool          `json:"truncated"`
	FilesSearched int           `json:"files_searched"`
	FilesSkipped  int           `json:"files_skipped"`
}

type TextEdit struct {
	OldText    string `json:"old_text"`
	NewText    string `json:"new_text"`
	ReplaceAll bool   `json:"replace_all,omitempty"`
}

type EditRequest struct {
	Path         string     `json:"path"`
	Edits        []TextEdit `json:"edits"`
	ExpectSHA256 string     `json:"expect_sha256,omitempty"`
}

type EditResult struct {
	Replacements int    `json:"replacements"`
	SHA256       string `json:"sha256"`
	SizeBytes    int64  `json:"size_bytes"`
}

type PatchRequest struct {
	Cwd   string `json:"cwd"`
	Patch string `json:"patch"`
	Strip *int   `json:"strip,omitempty"`
}

type PatchedFile struct {
	Path       string `json:"path"`
	Action     string `json:"action"`
	Hunks      int    `json:"hunks"`
	MovedLines int    `json:"moved_lines"`
}

type PatchResult struct {
	Files []PatchedFile `json:"files"`
}

type WatchEvent struct {
	Type        string `json:"type"`
	Path        string `json:"path,omitempty"`
	IsDirectory *bool  `json:"is_directory,omitempty"`
}

type TarIn struct {
	Files       int64 `json:"files"`
	Directories int64 `json:"directories"`
	Links       int64 `json:"links"`
	Bytes       int64 `json:"bytes"`
}
