package server

import (
	"context"

	"fuse/guest/internal/edit"
	"fuse/guest/internal/patch"
	"fuse/guest/internal/protocol"
	"fuse/guest/internal/search"
)

var fileOperations = map[string]operation{
	"stat": takes(func(a *Agent, _ context.Context, r protocol.StatRequest) (protocol.FileInfo, error) {
		return a.Files.Stat(r)
	}),
	"list": takes(func(a *Agent, ctx context.Context, r protocol.ListRequest) (protocol.Listing, error) {
		return a.Files.List(ctx, r)
	}),
	"mkdir": takes(func(a *Agent, _ context.Context, r protocol.MkdirRequest) (protocol.FileInfo, error) {
		return a.Files.Mkdir(r)
	}),
	"move": takes(func(a *Agent, ctx context.Context, r protocol.TransferRequest) (protocol.FileInfo, error) {
		return a.Files.Move(ctx, r)
	}),
	"copy": takes(func(a *Agent, ctx context.Context, r protocol.TransferRequest) (protocol.FileInfo, error) {
		return a.Files.Copy(ctx, r)
	}),
	"remove": takes(func(a *Agent, ctx context.Context, r protocol.RemoveRequest) (protocol.Removed, error) {
		return a.Files.Remove(ctx, r)
	}),
	"symlink": takes(func(a *Agent, _ context.Context, r protocol.SymlinkRequest) (protocol.FileInfo, error) {
		return a.Files.Symlink(r)
	}),
	"chmod": takes(func(a *Agent, ctx context.Context, r protocol.ChmodRequest) (protocol.Done, error) {
		return a.Files.Chmod(ctx, r)
	}),
	"chown": takes(func(a *Agent, ctx context.Context, r protocol.ChownRequest) (protocol.Done, error) {
		return a.Files.Chown(ctx, r)
	}),
	"glob": takes(func(a *Agent, ctx context.Context, r protocol.FileGlobRequest) (protocol.Listing, error) {
		return a.Files.Glob(ctx, r)
	}),
	"search": takes(func(_ *Agent, ctx context.Context, r protocol.SearchRequest) (protocol.SearchResult, error) {
		return search.Find(ctx, r)
	}),
	"edit": takes(func(_ *Agent, _ context.Context, r protocol.EditRequest) (protocol.EditResult, error) {
		return edit.Apply(r)
	}),
	"patch": takes(func(_ *Agent, ctx context.Context, r protocol.PatchRequest) (protocol.PatchResult, error) {
		return patch.Apply(ctx, r)
	}),
}
