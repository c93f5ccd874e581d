// Package watermark keeps the highest fencing token that a server has seen, in memory and in a file, so that
// also after a restart the server notices a store that went back in time, as after the restore of an old
// backup. Such a store would give tokens twice.
//
// What is compared with the mark, and what is stopped, is the adapter's. The file may be a second behind: what was
// granted in that second before a crash is not guarded by it. Each server needs a file of its own.
package watermark
