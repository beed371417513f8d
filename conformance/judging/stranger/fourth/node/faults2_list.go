package main

// secondList registers the second list of faults.
func secondList() {
	fieldFaults2()
	guardFaults2()
	routeDecls2()
	numberFaults2()
	refusalFaults2()
	relationFaults2()
	relationFaults3()
	effectDecls2()
	limitDecls2()
}
