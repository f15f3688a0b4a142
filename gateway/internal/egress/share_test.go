package egress

import "testing"

func TestWhatIsOnesOwnOthersCannotTake(t *testing.T) {
	all := newPool(100)
	greedy, modest := &share{pool: all, certain: 10}, &share{pool: all, certain: 10}
	for greedy.take(1, 1_000) {
	}
	if greedy.used != 110 || all.left.Load() != 0 {
		t.Fatalf("took %d, left %d", greedy.used, all.left.Load())
	}
	if !modest.take(10, 1_000) || modest.take(1, 1_000) {
		t.Fatal("it has its own, and no more")
	}
	greedy.give(50)
	if !modest.take(50, 60) || modest.take(1, 60) {
		t.Fatal("what was given back is there, up to the most that one may have")
	}
	greedy.give(60)
	modest.end()
	if all.left.Load() != 100 || greedy.used != 0 || modest.used != 0 || modest.take(1, 60) {
		t.Fatalf("%d left", all.left.Load())
	}
}
