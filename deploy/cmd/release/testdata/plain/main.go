// Command plain stands for a second program of an image. It has no module beside the standard library.
package main

func main() {}
