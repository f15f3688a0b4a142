package protocol

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"fuse/guest/internal/golden"
)

type bodies struct {
	Requests  []json.RawMessage `json:"requests"`
	Responses []json.RawMessage `json:"responses"`
}

func TestEveryFileOperationKeepsItsFields(t *testing.T) {
	types := map[string][2]any{
		"stat": {StatRequest{}, FileInfo{}}, "list": {ListRequest{}, Listing{}}, "mkdir": {MkdirRequest{}, FileInfo{}}, "move": {TransferRequest{}, FileInfo{}},
		"copy": {TransferRequest{}, FileInfo{}}, "remove": {RemoveRequest{}, Removed{}}, "symlink": {SymlinkRequest{}, FileInfo{}}, "chmod": {ChmodRequest{}, Done{}},
		"chown": {ChownRequest{}, Done{}}, "glob": {FileGlobRequest{}, Listing{}}, "search": {SearchRequest{}, SearchResult{}}, "edit": {EditRequest{}, EditResult{}},
		"patch": {PatchRequest{}, PatchResult{}},
	}
	var vectors map[string]json.RawMessage
	golden.Read(t, "file-operations.json", &vectors)
	for name, pair := range types {
		var each bodies
		if err := json.Unmarshal(vectors[name], &each); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		keepsFields(t, name, pair[0], each.Requests)
		keepsFields(t, name, pair[1], each.Responses)
		delete(vectors, name)
	}
	for name, kind := range map[string]any{"watch_events": WatchEvent{}, "tar_in": TarIn{}} {
		var texts []json.RawMessage
		if err := json.Unmarshal(vectors[name], &texts); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		keepsFields(t, name, kind, texts)
		delete(vectors, name)
	}
	if len(vectors) > 0 {
		t.Errorf("vectors of no type: %v", vectors)
	}
}

func keepsFields(t *testing.T, name string, kind any, texts []json.RawMessage) {
	t.Helper()
	for _, text := range texts {
		body := reflect.New(reflect.TypeOf(kind))
		strict := json.NewDecoder(bytes.NewReader(text))
		strict.DisallowUnknownFields()
		if err := strict.Decode(body.Interface()); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := json.Marshal(body.Interface())
		if err != nil {
			t.Fatal(err)
		}
		var want, got any
		if json.Unmarshal(text, &want) != nil || json.Unmarshal(again, &got) != nil || !reflect.DeepEqual(want, got) {
			t.Errorf("%s: %s became %s", name, text, again)
		}
	}
}
