package protocol

import "encoding/json"

// Rehearse lets encoding/json learn the bodies ahead. It does so once for each type, when it first meets it; in a machine restored from a
// template that would be before the first answer.
func Rehearse() {
	for _, body := range []any{
		&Health{}, &Identity{Network: &Network{}}, &IdentityConfirmed{}, &ExecSpec{}, &ExecExit{}, &ExecStatus{}, &ExecList{}, &FileWritten{}, &GlobRequest{},
		&GlobResult{}, &Freeze{}, &ErrorBody{}, &ExecStdin{}, &TerminalSize{}, &Signal{},
		&ProcessList{},
		&FileInfo{}, &StatRequest{}, &ListRequest{}, &Listing{}, &MkdirRequest{}, &TransferRequest{}, &RemoveRequest{}, &Removed{}, &SymlinkRequest{}, &ChmodRequest{},
		&ChownRequest{}, &FileGlobRequest{}, &SearchRequest{}, &SearchResult{}, &EditRequest{}, &EditResult{}, &PatchRequest{}, &PatchResult{}, &WatchEvent{}, &TarIn{},
	} {
		text, err := json.Marshal(body)
		if err == nil {
			_ = json.Unmarshal(text, body)
		}
	}
}
